// One check on its way through the engine.
#pragma once

#include <string_view>

#include "headgate/check.h"

namespace headgate {
struct Allowances;
}

namespace headgate::engine {

// What the server knows of a check besides what its caller states.
struct Account {
  // To whose share of the cells, leases and places in line the check counts. Set where the agent is not proven, so that
  // a caller that makes up agents has one share. Empty: the agent, else the address. No policy sees it.
  std::string_view owner{};
  const Allowances* allowances = nullptr;  // set for a command, which has quotas in place of tiers
};

// What a denial for now leads to.
enum class OnDenial : std::uint8_t {
  kAnswer,  // it is the answer
  kQueue,   // the check waits in line, where its policies let it
  kRetry,   // the check waits already: it goes back to its place
};

// Borrows all of it.
struct Request {
  Nanos now;
  const Check& check;
  const Account& account;
  OnDenial on_denial = OnDenial::kAnswer;

  // The user does not count: a caller without an agent could name another user with each check.
  [[nodiscard]] std::string_view owner() const noexcept {
    if (!account.owner.empty()) return account.owner;
    if (!check.agent.empty()) return check.agent;
    return check.ip.empty() ? std::string_view("(unidentified)") : check.ip;
  }
};

}  // namespace headgate::engine
