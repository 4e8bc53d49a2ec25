// The load generator's engine: threads, each with an epoll loop of its own over its share of the connections.
//
// Closed loop (no rate): every connection sends `pipeline` requests together and waits for all of their answers. Open
// loop (a rate): requests are due at fixed instants, whether or not the server keeps up, and latency counts from the
// instant a request was due, so that a server that stalls cannot hide it. A connection carries at most `pipeline`
// unanswered requests; what is due beyond waits here, with its clock running.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "cli/bench/bench_wire.h"
#include "cli/bench/histogram.h"
#include "headgate/result.h"

namespace headgate::cli {

struct LoadTarget {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string name;  // for messages
};
// host:port, [::1]:7379; the name is looked up.
[[nodiscard]] Result<LoadTarget> find_target(const std::string& text);

struct LoadPlan {
  static constexpr int kMostConnections = 20'000;
  static constexpr int kMostPipeline = 4096;
  static constexpr int kMostThreads = 64;
  static constexpr Nanos kConnectWithin{std::chrono::seconds{5}};
  static constexpr Nanos kAnswerWithin{std::chrono::seconds{5}};  // of what is still out at the end

  BenchKind kind = BenchKind::kHttp;
  LoadTarget target;
  std::string greeting;  // sent first on every connection, and answered once; empty: none
  int connections = 50;
  int pipeline = 1;
  int threads = 1;  // at most one for each connection
  std::uint32_t keys = 1;
  Nanos warmup{0};
  Nanos duration{0};           // after the warm-up; 0: until all requests are made
  std::uint64_t requests = 0;  // 0: until the duration is over
  double rate = 0;             // a second; 0: as fast as answers come
};

struct LoadResult {
  Histogram latency;
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  std::uint64_t other = 0;       // answered, but decided nothing
  std::uint64_t errors = 0;      // answered with an error, or lost with a connection
  std::uint64_t unanswered = 0;  // when time was over
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  Nanos elapsed{0};         // from the end of the warm-up to the last answer
  std::string first_error;  // an example
  [[nodiscard]] std::uint64_t answered() const noexcept { return allowed + denied + other + errors; }
};

struct LoadProgress {
  std::uint64_t answered = 0;  // warm-up included
  double part = 0;             // of all, 0 to 1
};

// Calls `progress` from the calling thread about ten times a second. `stop` ends it early, with what there is by then.
// An error: the server could not be reached, or rejected the token.
[[nodiscard]] Result<LoadResult> run_load(const LoadPlan& plan, const BenchRequest& request,
                                          const std::atomic<bool>& stop,
                                          const std::function<void(const LoadProgress&)>& progress);

}  // namespace headgate::cli
