#include "cli/bench/bench_worker.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <system_error>

#include "cli/view/terminal.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kReadBytes = 64 << 10;  // grows to kMostReadBytes for an answer that is larger
constexpr std::size_t kMostReadBytes = 2 << 20;
constexpr Nanos kRetryAfter = 100ms;
constexpr Nanos kLongestWait = 100ms;  // so that a stop is seen

}  // namespace

std::string why(int error) { return std::generic_category().message(error); }

Nanos bench_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos{now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

BenchWorker::BenchWorker(const LoadPlan& plan, const BenchRequest& request, int number, int workers, Nanos start)
    : plan_(plan),
      request_(request),
      warm_(start + plan.warmup),
      end_(plan.duration > Nanos{0} ? warm_ + plan.duration : Nanos::max()),
      random_(0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(number + 1)) {
  const auto share = [&](std::uint64_t whole) {
    const auto count = static_cast<std::uint64_t>(workers);
    return whole / count + (static_cast<std::uint64_t>(number) < whole % count ? 1 : 0);
  };
  quota_ = plan.requests;
  if (plan.requests > 0) {
    quota_ = share(plan.requests);
    if (quota_ == 0) end_ = start;
  }
  if (open_loop()) {
    interval_ = 1e9 * workers / plan.rate;
    first_due_ = start + Nanos{static_cast<std::int64_t>(interval_ * number / workers)};
  }
  last_answer_ = warm_;
  connections_.resize(share(static_cast<std::uint64_t>(plan.connections)));
  for (Connection& connection : connections_) {
    connection.in.resize(kReadBytes);
    connection.due.resize(static_cast<std::size_t>(plan.pipeline));
  }
  away_ = connections_.size();
  alone_since_ = start;
}

BenchWorker::~BenchWorker() {
  for (const Connection& connection : connections_) {
    if (connection.fd >= 0) ::close(connection.fd);
  }
  if (epoll_ >= 0) ::close(epoll_);
}

std::uint32_t BenchWorker::random_key() noexcept {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<std::uint32_t>(((random_ >> 32) * plan_.keys) >> 32);
}

Nanos BenchWorker::next_due() const noexcept {
  return first_due_ + Nanos{static_cast<std::int64_t>(interval_ * static_cast<double>(scheduled_))};
}

bool BenchWorker::may_send(Nanos due) const noexcept {
  return due < end_ && (quota_ == 0 || due < warm_ || counted_ < quota_);
}

bool BenchWorker::done(Nanos now) const noexcept {
  const bool made_all = quota_ > 0 && counted_ >= quota_;
  const bool over = now >= end_ && !(open_loop() && may_send(next_due()));
  if ((made_all || over) && unanswered_ == 0) return true;
  return end_ != Nanos::max() && now >= end_ + LoadPlan::kAnswerWithin;
}

Nanos BenchWorker::wait_for(Nanos now) const noexcept {
  Nanos wait = kLongestWait;
  if (end_ > now) wait = std::min(wait, end_ - now);
  if (open_loop() && may_send(next_due())) {
    const Nanos due = next_due() - now;
    // What is due already waits for room, which an event will bring.
    if (due > Nanos{0}) wait = std::min(wait, due);
  }
  if (away_ > 0) wait = std::min(wait, kRetryAfter);
  return wait;
}

void BenchWorker::run(const std::atomic<bool>& stop) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) {
    fatal_ = "epoll cannot be used: " + why(errno);
    return;
  }
  std::array<epoll_event, 256> events;
  Nanos now = bench_now();
  while (fatal_.empty() && !stop.load(std::memory_order_relaxed) && !done(now)) {
    if (away_ > 0) reconnect(now);
    if (open_loop()) dispatch(now);
    const Nanos wait = wait_for(now);
    const timespec limit{wait / 1s, (wait % 1s).count()};
    int count = ::epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), &limit, nullptr);
    if (count < 0 && errno == ENOSYS) {  // before Linux 5.11
      count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                           static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
    }
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      on_event(*static_cast<Connection*>(event.data.ptr), event.events);
    }
    now = bench_now();
  }
  // What is still out counts only if it was sent in earnest.
  for (Connection& connection : connections_) {
    for (std::size_t i = 0; i < connection.unanswered; ++i) {
      const Nanos due = connection.due[(connection.first + i) % connection.due.size()];
      if (due >= warm_) ++result_.unanswered;
    }
  }
  while (open_loop() && end_ != Nanos::max() && now >= end_ && may_send(next_due())) {
    if (next_due() >= warm_) {
      ++result_.unanswered;
      ++counted_;
    }
    ++scheduled_;
  }
}

void BenchWorker::connect(Connection& connection) {
  connection.fd = open_socket(plan_.target);
  if (connection.fd < 0) {
    note_error("cannot connect: " + why(errno));
    return;
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT;
  event.data.ptr = &connection;
  connection.wants_write = true;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
}

void BenchWorker::reconnect(Nanos now) {
  if (away_ < connections_.size()) {
    alone_since_ = now;
  } else if (now - alone_since_ > LoadPlan::kConnectWithin) {
    fatal_ = fmt::format("cannot reach {} any more: {}", plan_.target.name,
                         result_.first_error.empty() ? "no connection was made in time" : result_.first_error);
    return;
  }
  for (Connection& connection : connections_) {
    if (connection.fd >= 0 || connection.retry_at > now) continue;
    connection.retry_at = now + kRetryAfter;
    connect(connection);
  }
}

void BenchWorker::on_event(Connection& connection, std::uint32_t events) {
  if (connection.fd < 0) return;  // dropped by an earlier event of the same batch
  if (!connection.connected) {
    on_connected(connection);
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive(connection);
  if (connection.fd >= 0 && connection.out_at < connection.out.size()) flush(connection);
}

void BenchWorker::on_connected(Connection& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &error, &length);
  const Nanos now = bench_now();
  if (error != 0) {
    drop(connection, "cannot connect: " + why(error), now);
    return;
  }
  connection.connected = true;
  connection.greeted = plan_.greeting.empty();
  --away_;
  connection.out = plan_.greeting;
  connection.out_at = 0;
  if (!open_loop() && connection.greeted) fill(connection, now);
  flush(connection);
}

void BenchWorker::note_error(std::string_view text) {
  constexpr std::size_t kShown = 200;
  if (result_.first_error.empty()) result_.first_error = printable(text.substr(0, kShown));
}

// Whatever was out on it will not be answered.
void BenchWorker::lose(Connection& connection, std::string_view reason) {
  bool counted = false;
  for (; connection.unanswered > 0; --connection.unanswered) {
    if (connection.due[connection.first] >= warm_) {
      ++result_.errors;
      counted = true;
    }
    connection.first = (connection.first + 1) % connection.due.size();
    --unanswered_;
  }
  if (counted) note_error(reason);
}

void BenchWorker::drop(Connection& connection, std::string_view reason, Nanos now) {
  if (connection.connected) {
    ++away_;
  } else {
    note_error(reason);
  }
  lose(connection, reason);
  ::close(connection.fd);
  connection.fd = -1;
  connection.connected = false;
  connection.greeted = false;
  connection.in_size = 0;
  connection.out.clear();
  connection.out_at = 0;
  // One that answered may come back at once; one that never did must not be hammered.
  connection.retry_at = now + (connection.answered ? Nanos{0} : kRetryAfter);
  connection.answered = false;
}

void BenchWorker::receive(Connection& connection) {
  const ssize_t count =
      ::recv(connection.fd, connection.in.data() + connection.in_size, connection.in.size() - connection.in_size, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const Nanos now = bench_now();
  if (count <= 0) {
    drop(connection, count == 0 ? "the server closed the connection" : why(errno), now);
    return;
  }
  if (now >= warm_) result_.received_bytes += static_cast<std::uint64_t>(count);
  connection.in_size += static_cast<std::size_t>(count);
  std::string_view rest(connection.in.data(), connection.in_size);
  while (!rest.empty()) {
    const BenchReply reply = read_reply(plan_.kind, rest);
    if (reply.outcome == BenchReply::Outcome::kMore) break;
    const bool unsolicited = connection.greeted && connection.unanswered == 0;
    if (reply.outcome == BenchReply::Outcome::kGarbage || unsolicited) {
      drop(connection, unsolicited ? "an answer without a request" : "an answer that cannot be read", now);
      return;
    }
    take(connection, reply, now);
    rest.remove_prefix(reply.size);
    if (!fatal_.empty()) return;
    if (reply.closes) {
      drop(connection, "the server closed the connection", now);
      return;
    }
  }
  std::copy(rest.begin(), rest.end(), connection.in.begin());
  connection.in_size = rest.size();
  if (connection.in_size == connection.in.size()) {
    if (connection.in.size() >= kMostReadBytes) {
      drop(connection, "an answer that is too long", now);
      return;
    }
    connection.in.resize(connection.in.size() * 2);
  }
  // The closed loop sends its next batch when all of the last is answered.
  if (!open_loop() && ready(connection) && connection.unanswered == 0) {
    fill(connection, now);
    flush(connection);
  }
}

void BenchWorker::take(Connection& connection, const BenchReply& reply, Nanos now) {
  if (!connection.greeted) {
    connection.greeted = true;
    if (reply.outcome == BenchReply::Outcome::kError) fatal_ = printable(reply.error);
    return;
  }
  const Nanos due = connection.due[connection.first];
  connection.first = connection.first + 1 == connection.due.size() ? 0 : connection.first + 1;
  --connection.unanswered;
  --unanswered_;
  connection.answered = true;
  answered_.store(answered_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (due < warm_) return;
  measured_.store(measured_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  last_answer_ = now;
  result_.latency.add(now - due);
  switch (reply.outcome) {
    case BenchReply::Outcome::kAllowed: ++result_.allowed; break;
    case BenchReply::Outcome::kDenied: ++result_.denied; break;
    case BenchReply::Outcome::kError:
      ++result_.errors;
      note_error(reply.error);
      break;
    default: ++result_.other; break;
  }
}

void BenchWorker::send_one(Connection& connection, Nanos due, Nanos now) {
  const std::size_t size = connection.due.size();
  const std::size_t at = connection.first + connection.unanswered;
  connection.due[at < size ? at : at - size] = due;
  ++connection.unanswered;
  ++unanswered_;
  if (due >= warm_) ++counted_;
  const std::size_t before = connection.out.size();
  request_.append(random_key(), connection.out);
  if (now >= warm_) result_.sent_bytes += connection.out.size() - before;
}

void BenchWorker::fill(Connection& connection, Nanos now) {
  while (connection.unanswered < connection.due.size() && may_send(now)) send_one(connection, now, now);
}

// Whatever is due, on the next connections that have room.
void BenchWorker::dispatch(Nanos now) {
  for (Nanos due = next_due(); due <= now && may_send(due); due = next_due()) {
    Connection* with_room = nullptr;
    for (std::size_t tried = 0; tried < connections_.size() && with_room == nullptr; ++tried) {
      Connection& candidate = connections_[turn_];
      turn_ = turn_ + 1 == connections_.size() ? 0 : turn_ + 1;
      if (ready(candidate) && candidate.unanswered < candidate.due.size()) with_room = &candidate;
    }
    if (with_room == nullptr) break;
    send_one(*with_room, due, now);
    ++scheduled_;
    if (!with_room->dirty) {
      with_room->dirty = true;
      dirty_.push_back(with_room);
    }
  }
  for (Connection* connection : dirty_) {
    connection->dirty = false;
    if (connection->fd >= 0) flush(*connection);
  }
  dirty_.clear();
}

void BenchWorker::flush(Connection& connection) {
  bool blocked = false;
  while (connection.out_at < connection.out.size() && !blocked) {
    const ssize_t count = ::send(connection.fd, connection.out.data() + connection.out_at,
                                 connection.out.size() - connection.out_at, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    blocked = count < 0 && errno == EAGAIN;
    if (count < 0 && !blocked) {
      drop(connection, why(errno), bench_now());
      return;
    }
    if (count > 0) connection.out_at += static_cast<std::size_t>(count);
  }
  if (!blocked) {
    connection.out.clear();
    connection.out_at = 0;
  }
  if (blocked == connection.wants_write) return;
  epoll_event event{};
  event.events = blocked ? EPOLLIN | EPOLLOUT : static_cast<std::uint32_t>(EPOLLIN);
  event.data.ptr = &connection;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  connection.wants_write = blocked;
}

}  // namespace headgate::cli
