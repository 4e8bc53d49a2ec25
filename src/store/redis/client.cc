#include "store/redis/client.h"
#include "base/short_turns.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>

#include "store/redis/core.h"
#include "store/redis/topology.h"

namespace headgate::store::redis {
namespace {

using std::chrono::milliseconds;

class Nobody final : public Observer {
  void on_down(const std::string& /*why*/) override {}
  void on_up(Nanos /*after*/) override {}
  void on_problem(std::string_view /*kind*/, const std::string& /*text*/) override {}
  void on_clock(Nanos /*offset*/) override {}
};

Observer& nobody() {
  static Nobody nobody;
  return nobody;
}

Result<void> check_options(const Options& options) {
  const auto wrong = [](std::string_view must) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("redis: {}", must)};
  };
  if (options.url.endpoints.empty()) return wrong("the url names no server");
  if (options.deadline < milliseconds{1} || options.deadline > std::chrono::minutes{1}) {
    return wrong("deadline must be between 1ms and 1m");
  }
  if (options.connect_timeout < milliseconds{1} || options.connect_timeout > std::chrono::minutes{1}) {
    return wrong("connect_timeout must be between 1ms and 1m");
  }
  if (options.connections < 1 || options.connections > 64) return wrong("connections must be between 1 and 64");
  if (options.max_outstanding < 1) return wrong("max_outstanding must be at least 1");
  if (options.max_reply_bytes < 1024) return wrong("max_reply_bytes must be at least 1024");
  return {};
}

}  // namespace

class Client::Engine {
 public:
  Engine(const Options& options, Observer& observer, std::shared_ptr<const TlsRules> tls)
      : core_(options, observer, std::move(tls)), topology_(Topology::make(core_)), changed_at_(core_.loop.now()) {
    why_ = "redis: not connected yet";
  }
  ~Engine() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    core_.loop.waker()->wake();
    thread_.join();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // May throw std::system_error.
  void start() {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "headgate-redis");
  }
  [[nodiscard]] bool works() const noexcept { return core_.loop.works(); }

  void call(Command command, Done done) {
    if (const State state = state_; state == State::kStarting || state == State::kDown) {
      return done(Error{ErrorCode::kIo, why(), true});
    }
    if (command.asked != Nanos{0} && steady_now() - command.asked >= deadline()) {
      return done(Error{ErrorCode::kTimedOut, "redis: no time was left to ask it", true});
    }
    switch (core_.requests.submit(command, done)) {
      case Requests::Taken::kYes: return;
      case Requests::Taken::kYesAndWake: return core_.loop.waker()->wake();
      case Requests::Taken::kFull: break;
    }
    done(Error{ErrorCode::kOverloaded, fmt::format("redis: {} calls wait already", core_.options.max_outstanding),
               true});
  }

  [[nodiscard]] Nanos deadline() const noexcept { return core_.options.deadline; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  [[nodiscard]] Nanos clock_offset() const noexcept { return Nanos{clock_offset_}; }
  [[nodiscard]] bool wait_until_up(Nanos at_most) const {
    std::unique_lock lock(mutex_);
    return came_up_.wait_for(lock, at_most, [this] { return state_ == State::kUp; });
  }

 private:
  void run();
  void publish();

  Core core_;
  std::unique_ptr<Topology> topology_;
  Nanos changed_at_;  // when it was last up, or not; for on_up()
  std::atomic<State> state_{State::kStarting};
  std::atomic<Nanos::rep> clock_offset_{0};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable came_up_;
  std::string why_;  // under the mutex
  std::thread thread_;
};

void Client::Engine::run() {
  // OpenSSL writes to sockets that may be closed at the other end; that is an error to us, not a signal.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  base::ask_for_short_turns();

  std::vector<Request*> batch;
  while (!stopping_) {
    std::list<Request> fresh = core_.requests.take_or_sleep();
    batch.clear();
    for (Request& request : fresh) batch.push_back(&request);
    core_.requests.accept(fresh);
    for (Request* const request : batch) topology_->route(*request);
    // What has come while this thread had no turn is read before anything is taken for late.
    if (core_.requests.next_due() <= core_.loop.now()) core_.loop.wait(Nanos{0});
    const Nanos now = core_.loop.now();
    const Nanos late = core_.requests.expire(now);
    const Nanos due = topology_->tick(now);
    topology_->flush();
    publish();
    const Nanos next = std::min(late, due);
    // What came while the batch was handled comes first, but sockets are looked at.
    core_.loop.wait(batch.empty() ? next - std::min(next, core_.loop.now()) : Nanos{0});
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kDown;
    why_ = "redis: the client was stopped";
  }
  topology_.reset();
}

void Client::Engine::publish() {
  clock_offset_ = topology_->clock_offset().count();
  const State state = topology_->state();
  const State before = state_;
  if (state == State::kUp && before == State::kUp) return;
  std::string why = state == State::kUp ? std::string() : topology_->why();
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
    why_ = why;
  }
  if (state == before) return;
  const Nanos now = core_.loop.now();
  if (state == State::kUp) {
    came_up_.notify_all();
    core_.observer.on_up(now - changed_at_);
  } else if (before == State::kUp || before == State::kStarting) {
    if (before == State::kUp) changed_at_ = now;
    core_.observer.on_down(why);
  }
}

Client::Client(std::unique_ptr<Engine> engine) noexcept : engine_(std::move(engine)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::make(const Options& options, Observer* observer) {
  if (Result<void> checked = check_options(options); !checked) return std::move(checked).error();
  std::shared_ptr<const TlsRules> tls;
  if (options.url.tls) {
    Result<std::shared_ptr<const TlsRules>> rules = TlsRules::read(options.tls);
    if (!rules) return std::move(rules).error();
    tls = std::move(*rules);
  }
  auto engine = std::make_unique<Engine>(options, observer != nullptr ? *observer : nobody(), std::move(tls));
  if (!engine->works()) return Error{ErrorCode::kIo, "redis: there are no file descriptors left", true};
  try {
    engine->start();
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kIo, fmt::format("redis: no thread for the client: {}", error.what()), true};
  }
  return std::unique_ptr<Client>(new Client(std::move(engine)));
}

void Client::call(Command command, Done done) { engine_->call(std::move(command), std::move(done)); }
Nanos Client::deadline() const noexcept { return engine_->deadline(); }
State Client::state() const noexcept { return engine_->state(); }
std::string Client::why() const { return engine_->why(); }
Nanos Client::clock_offset_approx() const noexcept { return engine_->clock_offset(); }
bool Client::wait_until_up(Nanos at_most) const { return engine_->wait_until_up(at_most); }

}  // namespace headgate::store::redis
