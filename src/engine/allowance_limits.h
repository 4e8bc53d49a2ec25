// Allowances: the limits and cells that commands bring along (see Allowances), and how they stand.
//
// Safe for concurrent use.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "engine/allowances.h"
#include "engine/cells.h"
#include "engine/controls.h"

namespace headgate::engine {

class AllowanceLimits {
 public:
  AllowanceLimits(Clock& clock, Cells& cells, Controls& controls) : clock_(clock), cells_(cells), controls_(controls) {}

  // The limit lives as long as the engine; nullptr: there are Controls::kMostLastingLimits different ones.
  [[nodiscard]] const WorkingLimit* limit(const Limit& limit);
  // The cell that belongs to these names, in this order.
  [[nodiscard]] base::Hash128 cell(std::span<const std::string_view> names) const noexcept;

  // How they stand; charges nothing. `done` is called once with an outcome for each: before this returns, or, with a
  // remote store, from another thread.
  using Looked = std::function<void(std::span<const core::Outcome> outcomes)>;
  void look_at(std::span<const Allowances::One> allowances, Looked done);
  // The same, and waits for a remote store. REQUIRES: outcomes.size() == allowances.size().
  void look_at(std::span<const Allowances::One> allowances, std::span<core::Outcome> outcomes);
  // Charges what is missing until so many units are used, as far as the limit goes. False: the store did not answer.
  bool raise_to(const Allowances::One& allowance, Units used);

 private:
  Clock& clock_;
  Cells& cells_;
  Controls& controls_;
};

}  // namespace headgate::engine
