#include "cli/bench/bench_load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/bench/bench_worker.h"
#include "cli/view/terminal.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

// Fails at once, instead of after a run whose report says only "could not connect".
Result<void> try_target(const LoadTarget& target) {
  const int fd = open_socket(target);
  if (fd < 0) return Error{ErrorCode::kIo, fmt::format("cannot reach {}: {}", target.name, why(errno))};
  pollfd wait{fd, POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(LoadPlan::kConnectWithin / 1ms));
  int error = ready > 0 ? 0 : ETIMEDOUT;
  socklen_t length = sizeof error;
  if (ready > 0) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  ::close(fd);
  if (error == 0) return {};
  if (error == ECONNREFUSED) {
    return Error{ErrorCode::kIo, fmt::format("cannot reach {}: connection refused; is the server running? start it "
                                             "with: headgate serve",
                                             target.name)};
  }
  return Error{ErrorCode::kIo, fmt::format("cannot reach {}: {}", target.name, why(error))};
}

// As many descriptors as we may have.
Result<void> allow_connections(int connections) {
  constexpr rlim_t kOthers = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOthers;
  if (limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--connections must be at most {} here, since no more files may be open, got {}",
                           limit.rlim_max - std::min(limit.rlim_max, kOthers), connections)};
}

}  // namespace

int open_socket(const LoadTarget& target) {
  const int fd = ::socket(target.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&target.address), target.length) == 0 || errno == EINPROGRESS) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

Result<LoadTarget> find_target(const std::string& text) {
  LoadTarget target;
  target.name = printable(text);
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (colon == std::string::npos || colon + 1 == text.size() || host.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("an address must be host:port, got \"{}\"", target.name)};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found);
  if (error != 0 || found == nullptr) {
    return Error{ErrorCode::kIo, fmt::format("cannot reach {}: {}", target.name, ::gai_strerror(error))};
  }
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(&target.address));
  target.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return target;
}

Result<LoadResult> run_load(const LoadPlan& plan, const BenchRequest& request, const std::atomic<bool>& stop,
                            const std::function<void(const LoadProgress&)>& progress) {
  if (Result<void> allowed = allow_connections(plan.connections); !allowed) return std::move(allowed).error();
  if (Result<void> there = try_target(plan.target); !there) return std::move(there).error();

  std::mutex mutex;
  std::condition_variable changed;
  int running = std::min(plan.threads, plan.connections);
  const int threads = running;
  const Nanos start = bench_now();
  std::vector<std::unique_ptr<BenchWorker>> workers;
  std::vector<std::thread> pool;
  workers.reserve(static_cast<std::size_t>(threads));
  pool.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) workers.push_back(std::make_unique<BenchWorker>(plan, request, i, threads, start));
  for (const auto& worker : workers) {
    pool.emplace_back([&, each = worker.get()] {
      ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // requests are due to the microsecond
      each->run(stop);
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }
  const auto told = [&] {
    LoadProgress now;
    std::uint64_t measured = 0;
    for (const auto& worker : workers) {
      now.answered += worker->answered();
      measured += worker->measured();
    }
    const double by_time = plan.duration > Nanos{0} ? static_cast<double>((bench_now() - start).count()) /
                                                          static_cast<double>((plan.warmup + plan.duration).count())
                                                    : 0;
    const double by_count = plan.requests > 0 ? static_cast<double>(measured) / static_cast<double>(plan.requests) : 0;
    now.part = std::clamp(std::max(by_time, by_count), 0.0, 1.0);
    return now;
  };
  {
    std::unique_lock lock(mutex);
    while (running > 0) {
      changed.wait_for(lock, 100ms);
      if (progress) progress(told());
    }
  }
  for (std::thread& thread : pool) thread.join();

  LoadResult all;
  Nanos last = start + plan.warmup;
  std::string fatal;
  for (const auto& worker : workers) {
    const LoadResult& one = worker->result();
    all.latency.merge(one.latency);
    all.allowed += one.allowed;
    all.denied += one.denied;
    all.other += one.other;
    all.errors += one.errors;
    all.unanswered += one.unanswered;
    all.sent_bytes += one.sent_bytes;
    all.received_bytes += one.received_bytes;
    if (all.first_error.empty()) all.first_error = one.first_error;
    if (fatal.empty()) fatal = worker->fatal();
    last = std::max(last, worker->last_answer());
  }
  all.elapsed = last - (start + plan.warmup);
  if (!fatal.empty()) return Error{ErrorCode::kIo, fatal};
  return all;
}

}  // namespace headgate::cli
