#include "store/redis/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "store/redis/wall_clock.h"

namespace headgate::store::redis {
namespace {

using std::chrono::milliseconds;

constexpr Nanos kClockEvery = std::chrono::seconds{1};
constexpr Nanos kSteady = std::chrono::seconds{1};  // a connection that lasted so long is no sign of trouble
constexpr int kSilentDeadlines = 3;

std::optional<std::int64_t> integer_in(const Reply& reply) noexcept {
  if (!reply.is_text()) return std::nullopt;
  std::int64_t value = 0;
  const std::string_view text = reply.text();
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What TIME answers; nothing: that is no time between 1970 and 2200.
std::optional<Nanos> time_in(const Reply& reply) noexcept {
  if (reply.size() != 2) return std::nullopt;
  const std::optional<std::int64_t> seconds = integer_in(reply[0]);
  const std::optional<std::int64_t> micros = integer_in(reply[1]);
  if (!seconds || !micros || *seconds < 0 || *seconds > 7'258'118'400 || *micros < 0 || *micros >= 1'000'000) {
    return std::nullopt;
  }
  return Nanos(std::chrono::seconds{*seconds}) + std::chrono::microseconds{*micros};
}

// The server as a whole cannot work now; asking it less helps it.
bool is_unwell(std::string_view word) noexcept { return word == "LOADING" || word == "BUSY" || word == "MASTERDOWN"; }

// The server answers, but not what every check asks of it: nothing may be written, or not by this user. Not OOM: there
// the check alone is denied (RedisStore), since callers can fill the memory with made-up keys.
bool is_refusal(std::string_view text) noexcept {
  const std::string_view word = word_of(text);
  return word == "MISCONF" || word == "NOREPLICAS" || word == "NOPERM" ||
         text.starts_with("ERR The user executing the script can't run");
}

// Writes as a check would, and leaves nothing behind.
constexpr std::string_view kTryToWrite = "return redis.call('SET', KEYS[1], '', 'PX', '1')";

// The first key in a call of a script: EVALSHA, its name, how many keys, and then that.
std::string first_key(std::string_view wire) {
  std::size_t size = 0;
  for (int word = 0; word < 4; ++word) {
    const std::size_t mark = wire.find('$', size);
    const std::size_t end = wire.find("\r\n", mark);
    if (mark == std::string_view::npos || end == std::string_view::npos) return {};
    if (std::from_chars(wire.data() + mark + 1, wire.data() + end, size).ec != std::errc{}) return {};
    wire.remove_prefix(end + 2);
  }
  return std::string(wire.substr(0, size));
}

}  // namespace

std::optional<Redirect> parse_redirect(std::string_view text, const std::string& host) {
  Redirect redirect;
  redirect.ask = text.starts_with("ASK ");
  if (!redirect.ask && !text.starts_with("MOVED ")) return std::nullopt;
  text.remove_prefix(redirect.ask ? 4 : 6);
  const auto [slot_end, slot_problem] = std::from_chars(text.data(), text.data() + text.size(), redirect.slot);
  if (slot_problem != std::errc{} || redirect.slot >= 16384) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(slot_end - text.data()));
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with(' ') || colon == std::string_view::npos || colon > 254) return std::nullopt;
  redirect.to.host = text.substr(1, colon - 1);
  if (redirect.to.host.empty() || redirect.to.host == "?") redirect.to.host = host;
  text.remove_prefix(colon + 1);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), redirect.to.port);
  if (problem != std::errc{} || end != text.data() + text.size() || redirect.to.port == 0) return std::nullopt;
  return redirect;
}

Node::Node(Core& core, Router& router, Endpoint endpoint, Greeting greeting)
    : core_(core),
      router_(router),
      endpoint_(std::move(endpoint)),
      name_(text_of(endpoint_)),
      rules_(core.rules(std::move(greeting))),
      lines_(std::max(1U, core.options.connections)),
      why_(fmt::format("redis {}: not connected yet", name_)) {
  for (Line& line : lines_) line.connection = std::make_unique<Connection>(core.loop, *this, endpoint_, rules_);
}

Node::~Node() {
  retired_ = true;
  const std::string why = fmt::format("redis {}: no longer asked", name_);
  reconnect(why);
  drop_parked(Error{ErrorCode::kIo, why, true});
}

Node::Line& Node::line_of(const Connection& connection) noexcept {
  return *std::find_if(lines_.begin(), lines_.end(),
                       [&](const Line& line) { return line.connection.get() == &connection; });
}

Connection* Node::least_loaded() noexcept {
  Connection* best = nullptr;
  for (const Line& line : lines_) {
    if (!line.connection->ready()) continue;
    if (best == nullptr || line.connection->load() < best->load()) best = line.connection.get();
  }
  return best;
}

bool Node::idle() const noexcept {
  return parked_.empty() &&
         std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.connection->load() == 0; });
}

void Node::send(Request& request) {
  Connection* const connection = usable() ? least_loaded() : nullptr;
  if (connection != nullptr) return connection->send(request, *this);
  if (!takes_calls()) return core_.requests.answer(request, Error{ErrorCode::kIo, why_, true});
  request.carrier = this;
  request.owed = &parked_.emplace_back(Owed{.request = &request, .since = core_.loop.now()});
}

void Node::flush() {
  for (const Line& line : lines_) line.connection->flush();
}

void Node::on_ready(Connection& connection) {
  const bool was_usable = usable();
  Line& line = line_of(connection);
  line.was_ready = true;
  line.ready_since = core_.loop.now();
  ++ready_;
  tried_ = true;
  close_circuit(core_.loop.now());
  for (const Owed& owed : std::exchange(parked_, {})) {
    if (owed.request != nullptr) connection.send(*owed.request, *this);
  }
  if (!was_usable) router_.on_change(*this);
}

void Node::on_lost(Connection& connection, std::string_view kind, const Error& why,
                   std::span<Request* const> requests) {
  if (!kind.empty()) core_.report(kind, why.message);
  lost(line_of(connection), why, requests);
}

void Node::lost(Line& line, const Error& why, std::span<Request* const> requests) {
  const Nanos now = core_.loop.now();
  if (line.was_ready) {
    --ready_;
    if (now - line.ready_since >= kSteady) line.pause.reset();
  }
  line.was_ready = false;
  line.open_at = now + line.pause.next(core_.dice());
  tried_ = true;
  if (ready_ == 0) why_ = why.message;
  for (Request* const request : requests) core_.requests.answer(*request, why);
  drop_parked(why);
  if (!retired_) router_.on_change(*this);
}

void Node::drop_parked(const Error& why) {
  // One at a time from the front: an answer may lead to more of them.
  for (; !parked_.empty(); parked_.pop_front()) {
    if (Request* const request = parked_.front().request; request != nullptr) core_.requests.answer(*request, why);
  }
}

void Node::reconnect(const std::string& why) {
  const Error error{ErrorCode::kIo, why, true};
  for (Line& line : lines_) {
    if (line.connection->closed()) continue;
    const std::vector<Request*> requests = line.connection->close();
    lost(line, error, requests);
  }
}

void Node::on_reply(Connection& connection, Request& request, const redisReply& reply) {
  if (reply.type == REDIS_REPLY_ERROR) return refuse(connection, request, {reply.str, reply.len});
  if (core_.loop.now() - request.asked <= core_.options.deadline) breaker_.answered();
  if (request.command.script != nullptr) refused_ = 0;
  core_.requests.answer(request, Reply(&reply));
}

void Node::refuse(Connection& connection, Request& request, std::string_view text) {
  const std::string_view word = word_of(text);
  if (word == "NOSCRIPT" && request.command.script != nullptr && !request.script_told) {
    return connection.send_with_script(request, *this);
  }
  if (const std::optional<Redirect> redirect = parse_redirect(text, endpoint_.host)) {
    return router_.on_redirect(*this, request, *redirect, text);
  }
  const Error error = error_of(text);
  core_.report(word, fmt::format("redis {}: {}", name_, error.message));
  if (is_refusal(text) && request.command.script != nullptr && ++refused_ == Breaker::kFailures) {
    refused_key_ = first_key(request.command.wire);
    if (breaker_.open(core_.loop.now())) open_circuit(error.message);
  }
  core_.requests.answer(request, error);
  if (is_unwell(word)) {
    if (breaker_.failed(core_.loop.now())) open_circuit(error.message);
    return;
  }
  breaker_.answered();
  // A new sign-in may succeed, or its error says why not; a replica is recognised in the same way.
  if (word == "NOAUTH" || word == "READONLY") reconnect(fmt::format("redis {}: {}", name_, error.message));
  if (word == "READONLY" || word == "CLUSTERDOWN") router_.on_stale(*this);
}

void Node::on_late() {
  if (!breaker_.failed(core_.loop.now())) return;
  open_circuit(fmt::format("{} calls in a row were not answered in time", Breaker::kFailures));
}

void Node::open_circuit(const std::string& why) {
  if (ready_ == 0) return;  // what is known already says more
  why_ = fmt::format("redis {}: {}", name_, why);
  router_.on_change(*this);
}

void Node::ask(std::initializer_list<std::string_view> words, Caller::Done done) {
  Connection* const connection = least_loaded();
  if (connection == nullptr) return;
  Command command;
  append_words({words.begin(), words.size()}, command.wire);
  connection->send(core_.requests.add_own(std::move(command), std::move(done), core_.patience), *this);
}

bool Node::close_circuit(Nanos now) noexcept {
  refused_ = 0;
  refused_key_.clear();
  return breaker_.close(now);
}

void Node::probe(Nanos now) {
  breaker_.probing(now);
  const auto heard = [this, now](const Result<Reply>& reply) {
    const Nanos answered = core_.loop.now();
    const std::string_view text = reply ? std::string_view() : std::string_view(reply.error().message);
    if (is_unwell(word_of(text)) || is_refusal(text)) return;
    if (answered - now > core_.options.deadline || ready_ == 0) return;
    if (close_circuit(answered)) router_.on_change(*this);
  };
  // PING would be answered by a server that has no memory left, too.
  if (refused_key_.empty()) return ask({"PING"}, heard);
  ask({"EVAL", kTryToWrite, "1", refused_key_ + ":w"}, heard);
}

void Node::ask_time(Nanos now) {
  clock_at_ = now + kClockEvery;
  ask({"TIME"}, [this, before = wall_now()](const Result<Reply>& reply) {
    const Nanos after = wall_now();
    // The longer it took, the less it says.
    if (!reply || after < before || after - before > core_.options.deadline) return;
    const std::optional<Nanos> theirs = time_in(*reply);
    if (!theirs) return;
    clock_offset_ = *theirs - (before + (after - before) / 2);
    core_.observer.on_clock(clock_offset_);
  });
}

Nanos Node::tick(Nanos now) {
  const Nanos lines = tick_lines(now);
  return ready_ == 0 ? lines : std::min(lines, tick_circuit(now));
}

Nanos Node::tick_lines(Nanos now) {
  Nanos due = kNotDue;
  for (Line& line : lines_) {
    if (line.connection->closed() && !retired_ && now >= line.open_at) line.connection->open();
    due = std::min(due, line.connection->tick(now));
    if (line.connection->closed() && !retired_) due = std::min(due, line.open_at);
  }
  return due;
}

Nanos Node::tick_circuit(Nanos now) {
  if (breaker_.is_open()) {
    if (now >= breaker_.probe_at()) probe(now);
    return breaker_.probe_at();
  }
  const Nanos silence = std::max(core_.options.deadline * kSilentDeadlines, Breaker::kOver);
  Nanos due = kNotDue;
  for (const Line& line : lines_) {
    const Nanos since = line.connection->owes_since();
    if (since == kNotDue) continue;
    due = std::min(due, since + silence);
    if (now < since + silence) continue;
    breaker_.open(now);
    const auto silent_ms = std::chrono::duration<double, std::milli>(now - since).count();
    open_circuit(fmt::format("no answer for {:.0f} ms", silent_ms));
    return breaker_.probe_at();
  }
  if (now >= clock_at_) ask_time(now);
  return std::min(due, clock_at_);
}

}  // namespace headgate::store::redis
