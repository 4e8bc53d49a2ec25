// A Check and its Account that own their text, for checks that outlive the call that brought them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/allowances.h"
#include "engine/request.h"
#include "headgate/check.h"

namespace headgate::engine {

class OwnedCheck {
 public:
  OwnedCheck() = default;
  explicit OwnedCheck(const Check& check, const Account& account = {}) : check_(check) {
    for (std::string_view Check::*field : kFields) check_.*field = keep(check.*field);
    for (const Attribute& attribute : check.attributes) {
      attributes_.push_back({keep(attribute.name), attribute.value});
      attributes_.back().value.text = keep(attribute.value.text);
    }
    for (const Cost& cost : check.costs) costs_.push_back({keep(cost.unit), cost.amount});
    check_.attributes = attributes_;
    check_.costs = costs_;
    account_.owner = keep(account.owner);
    if (account.allowances != nullptr) {
      allowances_ = std::make_unique<Allowances>(*account.allowances);
      account_.allowances = allowances_.get();
    }
  }
  OwnedCheck(const OwnedCheck&) = delete;
  OwnedCheck& operator=(const OwnedCheck&) = delete;
  OwnedCheck(OwnedCheck&&) = default;
  OwnedCheck& operator=(OwnedCheck&&) = default;

  [[nodiscard]] const Check& get() const noexcept { return check_; }
  [[nodiscard]] const Account& account() const noexcept { return account_; }

  static constexpr std::string_view Check::*kFields[] = {
      &Check::operation, &Check::agent,    &Check::session,        &Check::user,
      &Check::tenant,    &Check::plan,     &Check::channel,        &Check::ip,
      &Check::context,   &Check::resource, &Check::parent_session, &Check::parent_agent};

 private:
  std::string_view keep(std::string_view text) { return texts_.emplace_back(text); }

  std::deque<std::string> texts_;  // never moves what it holds
  std::vector<Attribute> attributes_;
  std::vector<Cost> costs_;
  std::unique_ptr<Allowances> allowances_;
  Check check_;
  Account account_;
};

}  // namespace headgate::engine
