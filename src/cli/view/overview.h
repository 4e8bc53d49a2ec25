// What a server says of itself (GET /api/overview), and how its numbers read.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "headgate/clock.h"

namespace headgate::cli {

struct Overview {
  std::string version;
  Nanos uptime{0};
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  std::uint64_t errors = 0;
  double checks_per_second = 0;
  double denied_per_second = 0;
  double errors_per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
  std::uint64_t cells = 0;
  std::uint64_t max_cells = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
  std::uint64_t http = 0;
  std::uint64_t resp = 0;
  std::uint64_t grpc = 0;
  std::uint64_t leases = 0;
  std::uint64_t waiting = 0;
  std::optional<double> load;
  std::string load_level;
  double load_factor = 1;
  bool emergency = false;
  std::string emergency_reason;
  std::string emergency_by;
  Nanos emergency_since{0};
  std::uint64_t policies = 0;
  std::string policies_version;

  struct Agent {
    std::string name;
    std::uint64_t allowed = 0;
    std::uint64_t denied = 0;
    bool limited = false;
  };
  struct Policy {
    std::string id;
    std::uint64_t admitted = 0;
    std::uint64_t denied = 0;
  };
  struct Offender {
    std::string agent;
    std::uint64_t violations = 0;
  };
  std::vector<Agent> agents;
  std::vector<Policy> top_policies;
  std::vector<Offender> offenders;
};

// What is missing reads as nothing.
[[nodiscard]] Overview read_overview(const nlohmann::ordered_json& json);

// 0, 0.4, 12.5, 1,234: a rate, for people.
[[nodiscard]] std::string rate_text(double per_second);
// 950, 12.3k, 4.5M: a count in at most five columns.
[[nodiscard]] std::string short_count(std::uint64_t count);
// "0.42 normal", "normal, limits x0.5".
[[nodiscard]] std::string load_text(const Overview& overview);
// 0.4 us, 1.25 ms.
[[nodiscard]] std::string latency_text(double microseconds);

}  // namespace headgate::cli
