#include "store/redis/connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "base/utf8.h"

namespace headgate::store::redis {
namespace {

constexpr std::size_t kGatherBytes = 131'072;  // encoded ahead of the socket; what times out behind them is never sent

std::string milliseconds_of(Nanos span) {
  return fmt::format("{} ms", std::chrono::duration<double, std::milli>(span).count());
}

std::string_view first_word(std::string_view text) noexcept { return text.substr(0, text.find(' ')); }

std::string_view said_by(const redisReply& reply) noexcept {
  return reply.str != nullptr ? std::string_view(reply.str, reply.len) : std::string_view{};
}

}  // namespace

Connection::Connection(Loop& loop, Owner& owner, Endpoint endpoint, const Rules& rules)
    : loop_(loop),
      owner_(owner),
      endpoint_(std::move(endpoint)),
      name_(text_of(endpoint_)),
      rules_(rules),
      reader_(rules.max_reply_bytes) {}

Connection::~Connection() { static_cast<void>(close()); }

void Connection::open() {
  assert(closed());
  opened_ = loop_.now();
  phase_ = Phase::kResolving;
  lookup_ = Lookup::start(endpoint_, loop_.waker());
  tick(opened_);
}

std::vector<Request*> Connection::close() {
  if (stream_.fd() >= 0) loop_.forget(stream_.fd(), *this);
  stream_.close();
  phase_ = Phase::kClosed;
  lookup_.reset();
  addresses_.clear();
  reader_.reset();
  events_ = 0;
  greetings_.clear();
  out_.clear();
  out_sent_ = 0;
  scripts_.clear();
  std::vector<Request*> requests;
  for (std::deque<Owed>* queue : {&owed_, &unsent_}) {
    for (const Owed& owed : *queue) {
      if (owed.request == nullptr) continue;
      owed.request->owed = nullptr;
      requests.push_back(owed.request);
    }
    queue->clear();
  }
  return requests;
}

void Connection::lose(std::string_view kind, const std::string& why) {
  const Error error{ErrorCode::kIo, fmt::format("redis {}: {}", name_, why), true};
  const std::vector<Request*> requests = close();
  owner_.on_lost(*this, kind, error, requests);
}

// What TLS has against it does not pass by itself, as a connection that is merely lost may.
void Connection::lose_stream() { lose(stream_.failed_in_tls() ? "TLS" : "", stream_.why()); }

Nanos Connection::tick(Nanos now) {
  if (phase_ == Phase::kResolving && lookup_->done()) {
    addresses_ = lookup_->addresses();
    const std::string why = lookup_->why();
    lookup_.reset();
    if (addresses_.empty()) {
      lose({}, why);
    } else {
      std::reverse(addresses_.begin(), addresses_.end());
      next_address();
    }
  }
  if (closed()) return kNotDue;
  if (!ready()) {
    const Nanos due = opened_ + rules_.connect_timeout;
    if (now < due) return due;
    lose_waiting();
    return kNotDue;
  }
  if (owed_.empty()) return kNotDue;
  const Nanos due = owed_.front().since + rules_.longest_debt;
  if (now < due) return due;
  lose({}, fmt::format("has answered nothing for {}", milliseconds_of(rules_.longest_debt)));
  return kNotDue;
}

void Connection::lose_waiting() {
  const std::string within = "within " + milliseconds_of(rules_.connect_timeout);
  switch (phase_) {
    case Phase::kResolving: return lose({}, "no address " + within);
    case Phase::kShaking: return lose("TLS", fmt::format("no TLS handshake {}; does it speak TLS?", within));
    case Phase::kGreeting: return lose({}, "no answer to the greeting " + within);
    default: return lose({}, "no connection " + within);
  }
}

void Connection::next_address() {
  while (!addresses_.empty()) {
    const SocketAddress address = addresses_.back();
    addresses_.pop_back();
    if (stream_.fd() >= 0) loop_.forget(stream_.fd(), *this);
    events_ = 0;
    if (!stream_.connect(address)) continue;
    phase_ = Phase::kConnecting;
    return want(EPOLLIN | EPOLLOUT);
  }
  lose({}, stream_.why());
}

void Connection::want(std::uint32_t events) {
  if (events == events_) return;
  events_ = events;
  if (!loop_.watch(stream_.fd(), events, *this)) lose({}, "it cannot be watched");
}

void Connection::on_events(std::uint32_t /*events*/) {
  switch (phase_) {
    case Phase::kClosed:
    case Phase::kResolving: return;
    case Phase::kConnecting: return connected();
    case Phase::kShaking: return shake();
    case Phase::kGreeting:
    case Phase::kReady: break;
  }
  read();
  if (!closed()) flush();
}

void Connection::connected() {
  if (!stream_.connected()) return next_address();
  if (rules_.tls == nullptr || !endpoint_.path.empty()) return greet();
  phase_ = Phase::kShaking;
  stream_.begin_tls(*rules_.tls, endpoint_.host);
  shake();
}

void Connection::shake() {
  switch (stream_.shake()) {
    case Stream::Moved::kSome: return greet();
    case Stream::Moved::kWantRead: return want(EPOLLIN);
    case Stream::Moved::kWantWrite: return want(EPOLLIN | EPOLLOUT);
    case Stream::Moved::kEnded:
    case Stream::Moved::kFailed: break;
  }
  lose("TLS", stream_.why());
}

void Connection::say(std::span<const std::string_view> words) {
  append_words(words, out_);
  ++numbered_;
}

// Everything at once, so that it takes one round trip.
void Connection::greet() {
  phase_ = Phase::kGreeting;
  const Greeting& greeting = rules_.greeting;
  if (!greeting.password.empty()) {
    if (greeting.user.empty()) {
      say(std::array<std::string_view, 2>{"AUTH", greeting.password});
    } else {
      say(std::array<std::string_view, 3>{"AUTH", greeting.user, greeting.password});
    }
    greetings_.push_back(Greeted::kAuth);
  }
  if (greeting.database != 0) {
    const std::string number = std::to_string(greeting.database);
    say(std::array<std::string_view, 2>{"SELECT", number});
    greetings_.push_back(Greeted::kSelect);
  }
  say(std::array<std::string_view, 3>{"CLIENT", "SETNAME", "headgate"});
  greetings_.push_back(Greeted::kName);
  if (greeting.want_master) {
    say(std::array<std::string_view, 1>{"ROLE"});
    greetings_.push_back(Greeted::kRole);
  }
  flush();
}

void Connection::lose_at_greeting(const redisReply& reply) {
  const std::string text = base::shortened(said_by(reply), 200);
  lose(first_word(text), text);
}

void Connection::on_greeting(const redisReply& reply) {
  const Greeted greeted = greetings_.front();
  greetings_.pop_front();
  const bool refused = reply.type == REDIS_REPLY_ERROR;
  const std::string_view said = said_by(reply);
  switch (greeted) {
    case Greeted::kAuth: {
      const bool unlocked = said.find("without any password") != std::string_view::npos;
      if (refused && !(unlocked && rules_.greeting.may_be_unlocked)) return lose_at_greeting(reply);
      break;
    }
    case Greeted::kSelect:
      if (refused) return lose_at_greeting(reply);
      break;
    case Greeted::kName:
      // The name is optional: a user without the permission to set one is accepted, one that must sign in is not.
      if (refused && said.starts_with("NOAUTH")) return lose_at_greeting(reply);
      break;
    case Greeted::kRole: {
      // Without the permission to ask, READONLY errors tell.
      const bool is_known = reply.type == REDIS_REPLY_ARRAY && reply.elements > 0 && reply.element[0]->str != nullptr;
      if (is_known && said_by(*reply.element[0]) != "master") {
        return lose("READONLY", "READONLY it is a replica, and writes must go to the master");
      }
      break;
    }
  }
  if (!greetings_.empty()) return;
  phase_ = Phase::kReady;
  owner_.on_ready(*this);
}

void Connection::read() {
  while (!closed()) {
    std::size_t count = 0;
    switch (stream_.read(loop_.buffer(), Loop::kBufferBytes, count)) {
      case Stream::Moved::kSome: break;
      case Stream::Moved::kWantRead: return;
      case Stream::Moved::kWantWrite: return want(EPOLLIN | EPOLLOUT);
      case Stream::Moved::kEnded: return lose({}, "it closed the connection");
      case Stream::Moved::kFailed: return lose_stream();
    }
    reader_.feed(loop_.buffer(), count);
    while (!closed()) {
      const ReplyPtr reply = reader_.next();
      if (reply == nullptr) break;
      deliver(*reply);
    }
    if (!closed() && reader_.broken()) return lose("PROTOCOL", fmt::format("is this Redis? {}", reader_.why()));
    // A socket that had less than there was room for is empty; TLS may hold back more.
    if (rules_.tls == nullptr && count < Loop::kBufferBytes) return;
  }
}

void Connection::deliver(const redisReply& reply) {
  if (phase_ == Phase::kGreeting) return on_greeting(reply);
  if (owed_.empty()) return lose("PROTOCOL", "is this Redis? It answered what nobody asked");
  const Owed owed = std::move(owed_.front());
  owed_.pop_front();
  Request* const request = owed.request;
  if (request == nullptr) {
    if (owed.late && reply.type != REDIS_REPLY_ERROR) owed.late(Reply(&reply));
    return;
  }
  request->owed = nullptr;
  owner_.on_reply(*this, *request, reply);
}

void Connection::send(Request& request, Carrier& carrier) {
  assert(ready());
  request.carrier = &carrier;
  request.owed = &unsent_.emplace_back(Owed{.request = &request});
}

void Connection::send_with_script(Request& request, Carrier& carrier) {
  request.script_told = true;
  request.tell_script = true;
  send(request, carrier);
}

void Connection::encode_next() {
  Request* const request = unsent_.front().request;
  unsent_.pop_front();
  if (request == nullptr) return;
  const Nanos now = loop_.now();
  const Script* const script = request->command.script;
  if (request->tell_script && scripts_[script] <= request->sent_as) {
    say(std::array<std::string_view, 3>{"SCRIPT", "LOAD", script->text});
    owed_.push_back(Owed{.since = now});
    scripts_[script] = numbered_;
  }
  if (request->asking) {
    say(std::array<std::string_view, 1>{"ASKING"});
    owed_.push_back(Owed{.since = now});
  }
  request->tell_script = false;
  request->asking = false;
  out_ += request->command.wire;
  request->sent_as = ++numbered_;
  request->owed = &owed_.emplace_back(Owed{.request = request, .since = now});
}

void Connection::flush() {
  while (phase_ >= Phase::kGreeting) {
    while (out_.size() - out_sent_ < kGatherBytes && !unsent_.empty() && owed_.size() < rules_.max_owed) encode_next();
    if (out_sent_ == out_.size()) break;
    std::size_t count = 0;
    switch (stream_.write(out_.data() + out_sent_, out_.size() - out_sent_, count)) {
      case Stream::Moved::kSome: break;
      case Stream::Moved::kWantRead:
      case Stream::Moved::kWantWrite: return want(EPOLLIN | EPOLLOUT);
      case Stream::Moved::kEnded:
      case Stream::Moved::kFailed: return lose_stream();
    }
    out_sent_ += count;
    if (out_sent_ >= kGatherBytes || out_sent_ == out_.size()) {
      out_.erase(0, out_sent_);
      out_sent_ = 0;
    }
  }
  if (phase_ >= Phase::kGreeting) want(EPOLLIN);
}

}  // namespace headgate::store::redis
