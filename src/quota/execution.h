// One command that was run, and what it used.
#pragma once

#include <cstdint>
#include <string>

#include "headgate/clock.h"

namespace headgate::quota {

struct Execution {
  std::int64_t id = 0;  // given by the ledger
  std::string user{};
  std::string session{};  // empty: none
  std::string type{};
  std::string command_hash{};  // SHA-256 as 64 lower-case hex digits; empty: not told
  std::int64_t duration_ms = 0;
  double cpu_percent = 0;  // of one core, over its duration: two busy cores are 200
  double memory_mb = 0;    // at its peak
  int exit_code = 0;
  std::string error{};   // empty: none
  Nanos executed_at{0};  // when it began, by the wall clock; kept to the millisecond
};

inline constexpr std::size_t kMaxErrorBytes = 2'000;  // of Execution::error; longer ones are cut

}  // namespace headgate::quota
