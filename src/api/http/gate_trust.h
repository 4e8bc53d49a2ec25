// Which headers of a proxy the gate believes: those that the proxy sets itself, or clears.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headgate::api {

// A header that is not believed is not read. Method and path of the request that the proxy was sent are always read,
// and X-Real-IP from a proxy on this machine or with a token of role gateway or admin.
struct GateTrust {
  bool agent = true;           // X-Headgate-Agent
  bool operation = false;      // X-Headgate-Operation
  bool session = false;        // X-Headgate-Session
  bool user = false;           // X-Headgate-User
  bool context = false;        // X-Headgate-Context
  bool cost = false;           // X-Headgate-Cost
  bool forwarded_for = false;  // the last address of X-Forwarded-For, where there is no X-Real-IP
};

inline constexpr std::array<std::pair<std::string_view, bool GateTrust::*>, 7> kGateHeaders{
    {{"agent", &GateTrust::agent},
     {"operation", &GateTrust::operation},
     {"session", &GateTrust::session},
     {"user", &GateTrust::user},
     {"context", &GateTrust::context},
     {"cost", &GateTrust::cost},
     {"forwarded_for", &GateTrust::forwarded_for}}};

// False: there is no header of that name.
inline bool trust_header(GateTrust& trust, std::string_view name) noexcept {
  for (const auto& [known, member] : kGateHeaders) {
    if (name != known) continue;
    trust.*member = true;
    return true;
  }
  return false;
}

// REQUIRES: all names are known.
inline GateTrust gate_trust_of(const std::vector<std::string>& names) noexcept {
  GateTrust trust;
  trust.agent = false;
  for (const std::string& name : names) trust_header(trust, name);
  return trust;
}

}  // namespace headgate::api
