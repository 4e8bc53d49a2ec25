// Policies in short, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "policy/model.h"

namespace headgate::cli {

// "agents A; operations CREATE_COMPONENT, ui.*"; "everything" if nothing matters.
[[nodiscard]] std::string match_text(const policy::Policy& policy);
// "agent, attr:componentType"; "(all)" for one key for all.
[[nodiscard]] std::string key_text(const policy::Policy& policy);
// "sliding_window 50/60s, burst 10 tokens"; several are joined by "and".
[[nodiscard]] std::string limit_text(const policy::Policy& policy);
// What `explain` says of a policy with least_cost, and of one with holds: false.
[[nodiscard]] std::string least_cost_text(double least_cost);
inline constexpr const char* kNoHolds = "charged for good: the end of a hold gives nothing back";

[[nodiscard]] nlohmann::ordered_json policy_json(const policy::Policy& policy);

// 50, 0.03: as few digits as tell it to the millionth.
[[nodiscard]] std::string number_text(double number);
// Whole where it can be; see engine::number_json.
[[nodiscard]] nlohmann::ordered_json number_json(double number);
// 12,345.
[[nodiscard]] std::string count_text(std::uint64_t count);
// 1m30s, 2h05m, 3.2s: what is readable, not exact.
[[nodiscard]] std::string span_text(Nanos span);
[[nodiscard]] double millis(Nanos span) noexcept;

}  // namespace headgate::cli
