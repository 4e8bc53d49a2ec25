// What has been asked and answered lately: by result, by protocol, by agent, and how long it took.
//
// Counted apart by each thread, so that counting costs a check a few nanoseconds; put together when they are read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"

namespace headgate::observe {

enum class Protocol : std::uint8_t { kHttp, kGate, kWebSocket, kResp, kGrpc };
inline constexpr int kProtocolCount = 5;
[[nodiscard]] const char* to_string(Protocol protocol) noexcept;  // "http", "gate", "websocket", "resp", "grpc"

// One answered check.
struct Answered {
  Protocol protocol = Protocol::kHttp;
  std::string_view agent;  // empty: not known
  bool allowed = true;
  bool error = false;  // not a question that can be answered
  Nanos took{-1};      // by the engine; negative: not measured (under load most are not: see measures())
};

struct AgentTraffic {
  std::string agent;
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  Nanos last_seen{0};  // wall clock
};

struct Histogram {
  static constexpr int kBuckets = 24;  // up to 2^(7+i) ns: 128 ns, 256 ns, ... ; the last is all the rest
  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t total = 0;
  double sum_seconds = 0;
};

// A second's worth, or a longer step's.
struct Moment {
  Nanos time{0};  // wall clock, its start
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  std::uint64_t errors = 0;
};

class Traffic {
 public:
  static constexpr std::size_t kMostAgents = 10'000;  // further ones are counted, but not by name
  static constexpr unsigned kMeasureEvery = 64;
  static constexpr Nanos kMeasureAfter = std::chrono::milliseconds{1};

  Traffic();
  ~Traffic();

  // Whether this thread's next check, at `now`, is one to measure: each kMeasureEvery-th, and each that comes
  // kMeasureAfter the last, so that a few checks tell as much as many.
  [[nodiscard]] bool measures(Nanos now) noexcept;
  void add(const Answered& answered, Nanos wall) noexcept;

  struct ByResult {
    std::uint64_t allowed = 0;
    std::uint64_t denied = 0;
    std::uint64_t errors = 0;
  };
  [[nodiscard]] std::array<ByResult, kProtocolCount> totals() const;
  [[nodiscard]] Histogram latency() const;
  // All that were seen within the last day, busiest first.
  [[nodiscard]] std::vector<AgentTraffic> agents(std::size_t most) const;
  [[nodiscard]] AgentTraffic agent(std::string_view name) const;

  // Every second, by one thread: remembers what the last second brought.
  void tick(Nanos wall);
  struct Past {
    Nanos step{0};  // how far apart the moments are: what was asked for, rounded up to what is kept
    std::vector<Moment> moments;
  };
  // Newest last, at most a day back: by second for the last five minutes, else by ten seconds.
  [[nodiscard]] Past history(Nanos since, Nanos step) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headgate::observe
