// Several checks that are all admitted, or none.
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/owned_check.h"

namespace headgate::engine {

struct Engine::Series : std::enable_shared_from_this<Series> {
  Series(Engine& e, Nanos at, std::string_view whose, std::span<const Check> all, AllAnswered to)
      : engine(e), now(at), owner(whose), checks(all), answered(std::move(to)) {}

  Engine& engine;
  const Nanos now;
  const std::string owner;
  std::span<const Check> checks;
  AllAnswered answered;
  std::vector<OwnedCheck> owned;  // with a remote store: what `checks` are
  std::vector<Check> views;       // of these
  std::vector<std::string> holds;
  std::size_t next = 0;
  bool allowed = true;

  // One after the other, until one must be waited for.
  void go_on() {
    while (next < checks.size()) {
      // Held until all of them are known to fit. The last one need not be: nothing after it can fail.
      Check check = checks[next];
      check.hold = allowed && !check.peek && next + 1 < checks.size();
      check.peek = check.peek || !allowed;
      CheckDecision decision;
      const auto later = [&]() -> Done {
        return [self = shared_from_this()](const CheckDecision& decided) {
          self->hear(decided);
          self->go_on();
        };
      };
      if (engine.check_or_wait({now, check, {owner}, OnDenial::kAnswer}, decision, later) != 0) return;
      hear(decision);
    }
    for (const std::string& hold : holds) {
      if (allowed) {
        (void)engine.holds().settle(hold, {}, {});  // as it was charged
      } else {
        (void)engine.holds().end(hold, {}, GiveBack::kUndo);
      }
    }
    answered.done(allowed);
  }

  void hear(const CheckDecision& decision) {
    const bool held = allowed && !checks[next].peek && next + 1 < checks.size();
    allowed = allowed && decision.allowed;
    if (held && !decision.lease.empty()) holds.push_back(decision.lease);
    answered.each(next++, decision);
  }
};

void Engine::check_all(Nanos now, std::span<const Check> checks, AllAnswered answered, std::string_view owner) {
  if (!cells_.has_remote()) {
    return std::make_shared<Series>(*this, now, owner, checks, std::move(answered))->go_on();
  }
  std::vector<OwnedCheck> owned;
  std::vector<Check> views;
  owned.reserve(checks.size());
  views.reserve(checks.size());
  for (const Check& check : checks) owned.emplace_back(check);
  for (const OwnedCheck& check : owned) views.push_back(check.get());
  auto series = std::make_shared<Series>(*this, now, owner, views, std::move(answered));
  series->owned = std::move(owned);
  series->views = std::move(views);
  series->checks = series->views;
  series->go_on();
}

}  // namespace headgate::engine
