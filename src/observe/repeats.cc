#include "observe/repeats.h"

namespace headgate::observe {
namespace {

// A clock that was set back ends it, too.
bool is_over(Nanos since, Nanos now) noexcept { return now < since || now - since >= kRepeatCoolDown; }

}  // namespace

bool Repeats::arrives(const Notice& notice) {
  Condition& condition = conditions_.at(condition_of(notice));
  if (is_over(condition.last, notice.time)) condition = Condition{.queued = condition.queued};
  condition.last = notice.time;
  ++condition.count;
  if (condition.queued) return false;
  condition.queued = true;
  return true;
}

Repeats::Turn Repeats::leaves(const Notice& notice) {
  Condition* condition = conditions_.find(condition_of(notice));
  if (condition == nullptr) return {};
  condition->queued = false;
  const Turn turn{condition->count, condition->told_at > Nanos{0} && !is_over(condition->told_at, notice.time)};
  if (!turn.again) condition->told_at = notice.time;
  return turn;
}

}  // namespace headgate::observe
