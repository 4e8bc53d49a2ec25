// Internal to Quotas.
#pragma once

#include "service/quotas.h"

namespace headgate::service {

// To count by where there is no limit: exact as a double, which is what Redis computes with.
inline constexpr Units kCountless = 1'000'000'000'000'000;

// When to ask again where nobody knows: about as long as the load takes to read otherwise.
inline constexpr Nanos kBlockedRetry = std::chrono::seconds{5};

[[nodiscard]] inline base::Hash128 cell(const base::Hash128& whose, Period period) noexcept {
  return Allowances::cell(whose, static_cast<std::uint64_t>(period));
}

// One check from the question to the answer.
struct Quotas::Asking {
  QuotaAsk ask;
  Done done;
  quota::Allowance allowance{};
  Allowances limits{};
  std::array<core::Calendar, 3> calendars{};
  std::array<Attribute, 3> attributes{};
  int none = -1;                // the period in which nothing at all is allowed
  bool by_session = false;      // the session has a limit of its own
  bool tracked = false;         // in the line, or running
  std::array<Units, 3> used{};  // with this one
  int past = -1;                // monitored, and past this limit: of a period, or 3 for the session's
  std::string held_up;          // not enforced: why it could not have started; empty: it could
  Nanos arrived{0};
  Nanos waited{0};

  [[nodiscard]] bool counted() const noexcept { return allowance.mode != quota::Mode::kOff; }
  [[nodiscard]] bool enforced() const noexcept { return allowance.mode == quota::Mode::kEnforce; }
  // Evaluated and reported; nothing holds the command up.
  [[nodiscard]] bool monitored() const noexcept { return allowance.mode == quota::Mode::kMonitor; }
  // Policies see the user as the agent, too. Back-off, exemptions and shares of cells are by user: an agent of the same
  // name has others.
  [[nodiscard]] Check check() {
    attributes = {Attribute{"size", ask.size},
                  Attribute{"estimated_cpu", ask.cpu.value_or(allowance.rule.estimated_cpu)},
                  Attribute{"estimated_mem", ask.memory.value_or(allowance.rule.estimated_mem)}};
    Check check;
    check.operation = ask.type;
    check.agent = ask.user;
    check.user = ask.user;
    check.session = ask.session;
    check.plan = allowance.plan;
    check.channel = "command";
    check.ip = ask.ip;
    check.attributes = attributes;
    check.peek = ask.peek;
    check.priority = ask.priority;
    check.max_wait = ask.max_wait;
    check.allowances = &limits;
    if (ask.owner.empty()) ask.owner = "user:" + ask.user;
    check.owner = ask.owner;
    return check;
  }
};

}  // namespace headgate::service
