#include "net/worker.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include <array>
#include <cerrno>
#include <utility>

#include "base/short_turns.h"
#include "net/connection.h"
#include "net/sockets.h"

namespace headgate::net {
namespace {

constexpr int kAcceptsAtOnce = 64;  // before connections get their turn
constexpr int kEventsAtOnce = 256;
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
  IoCommon& common = worker_.common();
  if (common.open.fetch_add(1, std::memory_order_relaxed) >= common.options.max_connections) {
    common.open.fetch_sub(1, std::memory_order_relaxed);
    counts.refused.add(1);
    return true;
  }
  counts.accepted.add(1);
  std::shared_ptr<TlsContext> tls;
  if (listener().tls) {
    const std::lock_guard lock(common.tls_mutex);
    tls = common.tls[index_];
  }
  worker_.adopt(std::make_unique<Connection>(worker_, *this, std::move(socket), peer_of(address), std::move(tls),
                                             SystemClock::shared().now()));
  return true;
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
  connections_.push_back(std::move(connection));
  connections_.back()->set_place(std::prev(connections_.end()));
  connections_count_.add(1);
}

void Worker::bury(std::list<std::unique_ptr<Connection>>::iterator place) noexcept {
  graves_.splice(graves_.end(), connections_, place);
}

void Worker::close_ports() {
  for (const auto& port : ports_) port->close();
}

void Worker::empty_graves() noexcept {
  while (!graves_.empty()) {
    graves_.pop_front();
    connections_count_.subtract(1);
  }
  if (draining_ && connections_.empty()) {
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
  // From here on nothing is answered; what is left is closed.
  close_ports();
  graves_.splice(graves_.end(), connections_);
  empty_graves();
  mailbox_->close();
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
  for (auto it = connections_.begin(); it != connections_.end();) (*it++)->tick(now, whole_second);
  for (const auto& port : ports_) port->resume();
}

void Worker::drain() {
  draining_ = true;
  close_ports();
  for (auto it = connections_.begin(); it != connections_.end();) (*it++)->drain();
}

}  // namespace headgate::net
