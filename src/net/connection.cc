#include "net/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace headgate::net {
namespace {

constexpr int kReadsAtOnce = 4;                    // before others get their turn
constexpr std::size_t kKeptOut = 64 << 10;         // capacity of `out` that is kept for the next answer
constexpr Nanos kQuiet{std::chrono::seconds{2}};   // after so long without a byte, none is
constexpr Nanos kLinger{std::chrono::seconds{2}};  // for a peer to read our last words
constexpr std::size_t kTlsWeight = 16 << 10;       // of a TLS connection that has proven nothing
constexpr std::uint32_t kHear = EPOLLIN | EPOLLRDHUP;

Nanos steady_now() noexcept { return SystemClock::shared().now(); }

}  // namespace

// What a session's link holds: it knows whether the connection is still there.
class Connection::Handle final : public Link, public std::enable_shared_from_this<Handle> {
 public:
  Handle(std::shared_ptr<Mailbox> mailbox, Connection* owner) noexcept
      : connection(owner), mailbox_(std::move(mailbox)) {}
  void post(std::function<void(Session&)> work) override {
    mailbox_->put([self = shared_from_this(), work = std::move(work)] {
      if (self->connection != nullptr) self->connection->run(work);
    });
  }
  Connection* connection;  // touched on its thread only

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

Connection::Connection(Worker& worker, Port& port, base::Descriptor socket, Peer peer, std::shared_ptr<TlsContext> tls,
                       const Places::Claim& claim, Nanos now)
    : worker_(worker),
      port_(port),
      socket_(std::move(socket)),
      claim_(claim),
      handle_(std::make_shared<Handle>(worker.mailbox(), this)),
      peer_(std::make_unique<Peer>(std::move(peer))),
      heard_(now),
      began_(now),
      rank_(claim.kept ? Rank::kKeptUnknown : Rank::kUnknown) {
  if (tls) {
    tls_ = std::make_unique<TlsStream>(std::move(tls), socket_.get());
    peer_->tls = true;
    state_ = State::kShakingHands;
  }
  port_.counts.open.add(1);
}

Connection::~Connection() {
  handle_->connection = nullptr;
  session_.reset();
  port_.counts.open.subtract(1);
  charge(0);
  worker_.common().places.leave(claim_);
}

template <class Work>
void Connection::guarded(Work work) noexcept {
  try {
    work();
  } catch (const std::bad_alloc&) {
    port_.counts.shed.add(1);
    close();
  }
}

bool Connection::open() {
  events_ = kHear;
  if (!worker_.watch(socket_.get(), events_, *this)) return false;
  if (state_ == State::kShakingHands) return true;
  began_ = Nanos{0};
  return begin(*peer_);
}

bool Connection::begin(const Peer& peer) {
  session_ = port_.listener().make(peer);
  peer_.reset();
  state_ = State::kOpen;
  if (!session_) return false;
  session_->link = handle_;
  return true;
}

void Connection::want(std::uint32_t events) noexcept {
  if (events == events_) return;
  events_ = events;
  worker_.change(socket_.get(), events, *this);
}

void Connection::ready(std::uint32_t events) {
  guarded([&] { hear(events, steady_now()); });
}

void Connection::hear(std::uint32_t events, Nanos now) {
  switch (state_) {
    case State::kShakingHands: return shake_hands(now);
    case State::kLingering: return discard();
    case State::kClosed: return;
    case State::kOpen: break;
  }
  if ((events & EPOLLOUT) != 0) {
    blocked_ = false;
    if (std::exchange(read_waits_out_, false)) return read(now);
    return advance(now);
  }
  if (!session_->paused && !blocked_ && !ended_) return read(now);
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return close();  // the peer is gone
  // Something came while it is not wanted: stop hearing of it until it is.
  if ((events & EPOLLRDHUP) != 0) hung_up_ = true;
  want((blocked_ ? EPOLLOUT : 0U) | (hung_up_ ? 0U : static_cast<std::uint32_t>(EPOLLRDHUP)));
  if (hung_up_ && session_->paused && !ended_) {
    ended_ = true;
    session_->finish();
    advance(now);
  }
}

void Connection::shake_hands(Nanos now) {
  switch (tls_->handshake()) {
    case Moved::kWantRead: return want(EPOLLIN);
    case Moved::kWantWrite: return want(EPOLLOUT);
    case Moved::kEnded:
    case Moved::kFailed: return close();
    case Moved::kMore: break;
  }
  began_ = Nanos{0};
  heard_ = now;
  peer_->certificate = tls_->common_name();
  if (!begin(*peer_)) return close();
  if (worker_.draining()) session_->drain();
  want(kHear);
  read(now);  // the first request may have come with the last of the handshake
}

Moved Connection::pull(std::size_t& count) noexcept {
  if (tls_) return tls_->read(worker_.buffer(), Worker::kBuffer, count);
  const ssize_t got = ::recv(socket_.get(), worker_.buffer(), Worker::kBuffer, 0);
  count = got > 0 ? static_cast<std::size_t>(got) : 0;
  if (got > 0) return Moved::kMore;
  if (got == 0) return Moved::kEnded;
  return errno == EAGAIN || errno == EINTR ? Moved::kWantRead : Moved::kFailed;
}

Moved Connection::push(std::string_view out, std::size_t& count) noexcept {
  if (tls_) return tls_->write(out.data(), out.size(), count);
  const ssize_t sent = ::send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL);
  count = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  if (sent >= 0) return Moved::kMore;
  return errno == EAGAIN || errno == EINTR ? Moved::kWantWrite : Moved::kFailed;
}

void Connection::read(Nanos now) {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    std::size_t count = 0;
    switch (pull(count)) {
      case Moved::kMore: break;
      case Moved::kWantRead: return advance(now);
      case Moved::kWantWrite: read_waits_out_ = true; return want(EPOLLOUT);
      case Moved::kEnded: return ended(now);
      case Moved::kFailed: return close();
    }
    deliver({worker_.buffer(), count}, now);
    if (state_ != State::kOpen) return;
    const bool all = tls_ ? !tls_->pending() : count < Worker::kBuffer;
    if (all || session_->paused || session_->close || session_->successor) break;
  }
  advance(now);
}

void Connection::deliver(std::string_view bytes, Nanos now) {
  port_.counts.bytes_in.add(bytes.size());
  heard_ = now;
  const std::size_t before = session_->out.size();
  session_->receive(bytes, now);
  if (session_->standing != standing_) take_standing();
  // A request that follows an answer has begun now; one that goes on keeps its beginning.
  if (!session_->midway()) {
    began_ = Nanos{0};
  } else if (began_ == Nanos{0} || session_->out.size() != before) {
    began_ = now;
  }
  account(now);
}

// Looks at what the session holds. Connections without proof make room first, the one that has held the longest before
// all others; else this one has to.
void Connection::account(Nanos now) {
  if (state_ == State::kClosed) return;
  std::size_t held = 0;
  if (session_) held = session_->buffered() + (blocked_ ? session_->out.size() : 0);
  if (tls_ && standing_ == Standing::kUnknown) held += kTlsWeight;
  if (held <= BufferBudget::kFree) held = 0;
  if (held == charged_) return;
  BufferBudget& buffers = worker_.common().buffers;
  const bool more = held > charged_;
  charge(held);
  set_rank();
  if (!more) return;
  if (buffers.share_exceeded(standing_, held)) return shed(now);
  while (buffers.exceeded(standing_)) {
    if (!worker_.evict_holding(*this)) return shed(now);
  }
}

void Connection::charge(std::size_t held) noexcept {
  worker_.common().buffers.change(standing_, charged_, held);
  charged_ = held;
}

void Connection::shed(Nanos now) {
  port_.counts.shed.add(1);
  if (state_ != State::kOpen || blocked_) return close();
  session_->overloaded();
  if (flush(now)) end(now);
  if (state_ == State::kOpen) close();
}

void Connection::evict() noexcept {
  port_.counts.evicted.add(1);
  close();
}

bool Connection::is_idle() const noexcept {
  return state_ == State::kLingering ||
         (state_ == State::kOpen && !session_->busy() && !session_->midway() && session_->out.empty());
}

// The session knows better than before who its peer is.
void Connection::take_standing() {
  const std::size_t held = charged_;
  charge(0);  // by what it was known as
  const Standing before = std::exchange(standing_, session_->standing);
  charge(held);
  set_rank();
  const Places& places = worker_.common().places;
  if (before != Standing::kUnknown || !places.crowded() || places.may_stay(claim_, standing_)) return;
  // It was let in for the time being. It stays at the expense of another, or is answered and goes: a request whose body
  // is still to come is read and answered first.
  if (worker_.evict_one() || (claim_.kept && worker_.evict_kept())) return;
  leaves_ = true;
  session_->drain();
}

void Connection::set_rank() noexcept {
  Rank rank = Rank::kSettled;
  if (standing_ == Standing::kUnknown) {
    rank = charged_ > 0 ? (claim_.kept ? Rank::kKeptHolding : Rank::kHolding)
                        : (claim_.kept ? Rank::kKeptUnknown : Rank::kUnknown);
  } else if (standing_ == Standing::kAnonymous) {
    rank = claim_.kept ? Rank::kKeptAnonymous : Rank::kAnonymous;
  }
  move_to(rank);
}

void Connection::move_to(Rank rank) noexcept {
  if (rank == rank_ || state_ == State::kClosed) return;
  worker_.move(rank_, rank, place_);
  rank_ = rank;
}

// Takes the connection as far as it goes now: sends, closes, hands over, or waits for more to come.
void Connection::advance(Nanos now) {
  while (flush(now)) {
    if (session_->successor) {
      take_over(now);
      continue;
    }
    if (session_->close) return end(now);
    if (session_->paused) {
      if (!session_->busy()) {
        deliver({}, now);
        if (state_ != State::kOpen) return;
        if (!session_->out.empty() || !session_->paused || session_->close || session_->successor) continue;
      }
      // Another thread resumes it. Reading is stopped only once something comes.
      return want(hung_up_ ? 0U : events_ & kHear);
    }
    if (ended_) return end(now);  // nothing more can come of it
    want(kHear);
    if (tls_ && tls_->pending() && !again_) {
      // Decrypted already, so the socket will not say that it is there.
      again_ = true;
      session_->link->post([this](Session&) {
        again_ = false;
        if (!session_->paused && !blocked_ && state_ == State::kOpen) read(steady_now());
      });
    }
    return;
  }
}

// True: everything is sent. False: the peer must take some of it first, or is gone.
bool Connection::flush(Nanos now) {
  if (state_ != State::kOpen || blocked_) return false;
  std::string& out = session_->out;
  std::size_t sent = 0;
  while (sent < out.size()) {
    std::size_t count = 0;
    const Moved moved = push(std::string_view(out).substr(sent), count);
    if (moved == Moved::kMore) {
      sent += count;
    } else if (moved == Moved::kWantWrite) {
      blocked_ = true;
      break;
    } else {
      close();
      return false;
    }
  }
  port_.counts.bytes_out.add(sent);
  if (blocked_) {
    // `out` is always what is still to be sent, so that sessions see their backlog.
    out.erase(0, sent);
    stuck_ = now;
    // What the peer sends meanwhile may wait; that it has gone is worth knowing.
    want(EPOLLOUT | (hung_up_ ? 0U : static_cast<std::uint32_t>(EPOLLRDHUP)));
    account(now);
    return false;
  }
  out.clear();
  if (out.capacity() > (standing_ == Standing::kUnknown ? BufferBudget::kFree : kKeptOut)) std::string().swap(out);
  if (sent > 0) {
    session_->sent();
    if (!out.empty()) return flush(now);
  }
  return true;
}

void Connection::take_over(Nanos now) {
  std::unique_ptr<Session> next = std::move(session_->successor);
  std::string unread = std::move(session_->unread);
  const std::size_t size = unread.size();
  unread.append(Session::kSlack, '\0');
  next->standing = std::max(next->standing, session_->standing);
  session_ = std::move(next);
  session_->link = handle_;
  if (worker_.draining() || leaves_) session_->drain();
  port_.counts.bytes_in.subtract(size);  // counted when they came
  deliver({unread.data(), size}, now);
}

void Connection::ended(Nanos now) {
  hung_up_ = ended_ = true;
  want(0);
  session_->finish();
  advance(now);
}

void Connection::run(const std::function<void(Session&)>& work) {
  if (state_ != State::kOpen) return;
  const std::shared_ptr<Handle> alive = handle_;  // the work may let go of everything else
  guarded([&] {
    work(*session_);
    if (state_ != State::kOpen) return;
    if (session_->close || session_->successor) return advance(steady_now());
    if (!std::exchange(behind_, true)) worker_.advance_later(*this);
  });
}

void Connection::catch_up() {
  behind_ = false;
  guarded([this] {
    if (state_ != State::kOpen) return;
    account(steady_now());
    if (state_ == State::kOpen) advance(steady_now());
  });
}

void Connection::drain() {
  if (state_ == State::kShakingHands) return close();
  if (state_ != State::kOpen) return;
  guarded([this] {
    session_->drain();
    // Nothing was said, so there is nothing to wait for.
    if (session_->close && session_->out.empty()) return close();
    advance(steady_now());
  });
}

void Connection::tick(Nanos now, bool whole_second) {
  guarded([&] { pass_time(now, whole_second); });
}

void Connection::pass_time(Nanos now, bool whole_second) {
  const IoOptions& options = worker_.common().options;
  switch (state_) {
    case State::kClosed: return;
    case State::kLingering:
      if (now - began_ > kLinger) close();
      return;
    case State::kShakingHands:
      if (now - began_ > options.request_within) time_out(now);
      return;
    case State::kOpen: break;
  }
  if (blocked_) {
    if (now - stuck_ > options.write_within) return time_out(now);
  } else if (began_ > Nanos{0} && session_->midway()) {
    if (now - began_ > options.request_within) return time_out(now);
  } else if (session_->idle_limit > Nanos{0} && !session_->busy() && now - heard_ > session_->idle_limit) {
    return time_out(now);
  }
  // While memory is short, unfinished requests of strangers are let go of.
  if (base::memory_is_low() && (rank_ == Rank::kHolding || rank_ == Rank::kKeptHolding)) return shed(now);
  if (!whole_second) return;
  if (session_->out.empty() && session_->out.capacity() > 0 && now - heard_ > kQuiet) std::string().swap(session_->out);
  session_->tick(now);
  if (state_ != State::kOpen) return;
  account(now);
  if (state_ != State::kOpen) return;
  if (!session_->out.empty() || session_->close || session_->successor) advance(now);
}

void Connection::time_out(Nanos now) {
  port_.counts.timed_out.add(1);
  if (state_ != State::kOpen || blocked_) return close();
  session_->timed_out();
  if (!flush(now)) return close();
  end(now);
}

// All is said. The peer is given a moment to read it: closing on bytes we have not read would throw it away.
void Connection::end(Nanos now) {
  forget_session();
  if (tls_) tls_->shut_down();
  if (ended_) return close();
  ::shutdown(socket_.get(), SHUT_WR);
  state_ = State::kLingering;
  move_to(Rank::kUnknown);  // from now on it may be evicted, whatever its rank was
  began_ = now;
  want(EPOLLIN);
}

void Connection::discard() {
  const ssize_t got = ::recv(socket_.get(), worker_.buffer(), Worker::kBuffer, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close();
}

void Connection::forget_session() noexcept {
  handle_->connection = nullptr;
  session_.reset();
  charge(0);
}

void Connection::close() noexcept {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  charge(0);
  worker_.forget(socket_.get());
  worker_.bury(rank_, place_);
}

}  // namespace headgate::net
