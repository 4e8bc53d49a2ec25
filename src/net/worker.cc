#include "net/worker.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/memory_reserve.h"
#include "base/short_turns.h"
#include "net/connection.h"
#include "net/sockets.h"

namespace headgate::net {
namespace {

constexpr int kAcceptsAtOnce = 64;  // before connections get their turn
constexpr Nanos kTick{std::chrono::milliseconds{500}};

}  // namespace

Port::Port(Worker& worker, std::size_t index, base::Descriptor socket) noexcept
    : worker_(worker), index_(index), socket_(std::move(socket)) {}

const Listener& Port::listener() const noexcept { return worker_.common().listeners[index_]; }

void Port::open() { worker_.watch(socket_.get(), EPOLLIN, *this); }

void Port::close() {
  if (!socket_) return;
  worker_.forget(socket_.get());
  socket_.reset();
}

void Port::resume() {
  if (paused_ && socket_) worker_.change(socket_.get(), EPOLLIN, *this);
  paused_ = false;
}

void Port::ready(std::uint32_t /*events*/) {
  for (int i = 0; i < kAcceptsAtOnce && socket_; ++i) {
    if (!accept_one()) return;
  }
}

bool Port::accept_one() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  base::Descriptor socket(
      ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // It would be reported as ready for ever; the next tick tries again.
      paused_ = true;
      worker_.change(socket_.get(), 0, *this);
      return false;
    }
    return errno == ECONNABORTED || errno == EINTR;
  }
  Places& places = worker_.common().places;
  const Places::Claim claim = places.claim_of(address);
  try {
    if (!places.enter(claim)) {
      counts.refused.add(1);
      return true;
    }
    if (!find_room(claim)) {
      places.leave(claim);
      counts.refused.add(1);
      return true;
    }
  } catch (const std::bad_alloc&) {
    counts.shed.add(1);
    return true;
  }
  try {
    adopt(std::move(socket), address, claim);
  } catch (const std::bad_alloc&) {
    counts.shed.add(1);
  }
  return true;
}

bool Port::find_room(const Places::Claim& claim) {
  const Places& places = worker_.common().places;
  if (!places.crowded() || worker_.evict_one()) return true;
  return places.has_kept_place(claim) || (claim.kept && worker_.evict_kept());
}

void Port::adopt(base::Descriptor socket, const sockaddr_storage& from, const Places::Claim& claim) {
  IoCommon& common = worker_.common();
  std::shared_ptr<TlsContext> tls;
  if (listener().tls) {
    const std::lock_guard lock(common.tls_mutex);
    tls = common.tls[index_];
  }
  // Gives the place back, also if it cannot be made.
  struct Place {
    ~Place() {
      if (places != nullptr) places->leave(claim);
    }
    Places* places;
    const Places::Claim& claim;
  } place{&common.places, claim};
  auto made = std::make_unique<Connection>(worker_, *this, std::move(socket), peer_of(from), std::move(tls), claim,
                                           SystemClock::shared().now());
  place.places = nullptr;  // the connection's own from here on
  counts.accepted.add(1);
  worker_.adopt(std::move(made));
}

Worker::Worker(IoCommon& common, int index)
    : common_(common),
      index_(index),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      mailbox_(std::make_shared<Mailbox>()),
      buffer_(std::make_unique<char[]>(kBuffer + Session::kSlack)) {}

Worker::~Worker() {
  join();
  mailbox_->close();
}

void Worker::add_port(std::size_t listener, base::Descriptor socket) {
  ports_.push_back(std::make_unique<Port>(*this, listener, std::move(socket)));
}

bool Worker::watch(int fd, std::uint32_t events, Watcher& watcher) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watcher;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Worker::change(int fd, std::uint32_t events, Watcher& watcher) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watcher;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Worker::forget(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Worker::adopt(std::unique_ptr<Connection> connection) {
  if (!connection->open()) return;  // closed by its own end
  Connections& list = of(connection->rank());
  list.push_back(std::move(connection));
  list.back()->set_place(std::prev(list.end()));
  connections_count_.add(1);
  list.back()->account(SystemClock::shared().now());
}

void Worker::bury(Rank rank, Connections::iterator place) noexcept { graves_.splice(graves_.end(), of(rank), place); }

void Worker::move(Rank from, Rank to, Connections::iterator place) noexcept {
  of(to).splice(of(to).end(), of(from), place);
}

bool Worker::evict_first(Rank rank, const Connection* but) noexcept {
  if (of(rank).empty() || of(rank).front().get() == but) return false;
  of(rank).front()->evict();
  return true;
}

// Connections whose request is being answered are not idle. Looks at a few; at others the next time.
bool Worker::evict_idle(Rank rank) noexcept {
  constexpr int kMostLookedAt = 16;
  Connections& list = of(rank);
  for (int i = 0; i < kMostLookedAt && !list.empty(); ++i) {
    if (list.front()->is_idle()) {
      list.front()->evict();
      return true;
    }
    list.splice(list.end(), list, list.begin());
  }
  return false;
}

bool Worker::evict_one() noexcept {
  return evict_first(Rank::kUnknown) || evict_first(Rank::kHolding) || evict_idle(Rank::kAnonymous);
}

bool Worker::evict_kept() noexcept {
  return evict_first(Rank::kKeptUnknown) || evict_first(Rank::kKeptHolding) || evict_idle(Rank::kKeptAnonymous);
}

bool Worker::evict_holding(const Connection& asker) noexcept {
  if (evict_first(Rank::kHolding, &asker)) return true;
  return asker.is_kept() && evict_first(Rank::kKeptHolding, &asker);
}

bool Worker::no_connections() const noexcept {
  return std::all_of(connections_.begin(), connections_.end(), [](const Connections& list) { return list.empty(); });
}

// Over a copy: the work may close or move any of them. Those that are closed live until the graves are emptied.
template <class Work>
void Worker::for_each(Work work) {
  visited_.clear();
  for (const Connections& list : connections_) {
    for (const auto& connection : list) visited_.push_back(connection.get());
  }
  for (Connection* const connection : visited_) work(*connection);
}

void Worker::close_ports() {
  for (const auto& port : ports_) port->close();
}

void Worker::empty_graves() noexcept {
  while (!graves_.empty()) {
    graves_.pop_front();
    connections_count_.subtract(1);
  }
  if (draining_ && no_connections()) {
    const std::lock_guard lock(common_.idle_mutex);
    common_.idle.notify_all();
  }
}

void Worker::start() {
  thread_ = std::thread([this] {
    // Signals are the main thread's; and a peer that is gone is an error code, also where OpenSSL writes.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const std::string name = "headgate-io-" + std::to_string(index_);
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    base::ask_for_short_turns();
    if (common_.options.on_thread_start) common_.options.on_thread_start(index_);
    run();
  });
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
}

void Worker::begin_drain() {
  mailbox_->put([this] { drain(); });
}

void Worker::halt() {
  mailbox_->put([this] { halted_ = true; });
}

void Worker::ready(std::uint32_t /*events*/) { mailbox_->clear_wake(); }

// Blocks for ever only where no time can run out.
int Worker::timeout_ms(Nanos now) const {
  if (mailbox_->waiting()) return 0;
  const Nanos left = std::max(next_tick_ - now, Nanos{0});
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void Worker::run() {
  mailbox_->own();
  watch(mailbox_->fd(), EPOLLIN, *this);
  for (const auto& port : ports_) port->open();
  std::array<epoll_event, kEventsAtOnce> events{};
  Nanos now = SystemClock::shared().now();
  next_tick_ = now + kTick;
  while (!halted_) {
    try {
      turn(events, now);
    } catch (const std::bad_alloc&) {
      // Of what the turn left undone, events and letters come again, and the tick does.
      empty_graves();
    }
  }
  // From here on nothing is answered; what is left is closed.
  close_ports();
  for (Connections& list : connections_) graves_.splice(graves_.end(), list);
  empty_graves();
  mailbox_->close();
}

void Worker::turn(std::array<epoll_event, kEventsAtOnce>& events, Nanos& now) {
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout_ms(now));
  // An event's watcher lives until all events of this round are done with: what is closed meanwhile is buried.
  for (int i = 0; i < count; ++i) {
    static_cast<Watcher*>(events[static_cast<std::size_t>(i)].data.ptr)
        ->ready(events[static_cast<std::size_t>(i)].events);
  }
  if (mailbox_->waiting()) run_letters();
  now = SystemClock::shared().now();
  if (now >= next_tick_) tick(now);
  empty_graves();
}

// Letters to one connection are answered together.
void Worker::run_letters() {
  mailbox_->run();
  const std::vector<Connection*> connections = std::exchange(later_, {});
  for (Connection* const connection : connections) connection->catch_up();
}

void Worker::tick(Nanos now) {
  next_tick_ = now + kTick;
  const bool whole_second = ++ticks_ % 2 == 0;
  base::refill_memory_reserve();
  for_each([&](Connection& connection) { connection.tick(now, whole_second); });
  for (const auto& port : ports_) port->resume();
}

void Worker::drain() {
  draining_ = true;
  close_ports();
  for_each([](Connection& connection) { connection.drain(); });
}

}  // namespace headgate::net
