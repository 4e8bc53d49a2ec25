// What comes of a charge list that a store has judged. Which store that was makes no difference here.
#pragma once

#include "engine/aftermath.h"
#include "engine/charge_list.h"
#include "engine/check_decision.h"
#include "engine/request.h"

namespace headgate::engine {

void deny(CheckDecision& decision, Why why) noexcept;
// No store has judged anything.
void forget_outcomes(CheckDecision& decision) noexcept;

// Everything fits, now or after a wait: the answer, with its warnings.
void decide_allowed(const Request& request, const ChargeList& list, const store::Applied& applied, Aftermath& aftermath,
                    CheckDecision& decision);
// Something does not fit: which policy or allowance denies it, why, and when to try again.
void decide_denied(const ChargeList& list, const store::Applied& applied, CheckDecision& decision);
// After decide_denied(), where other checks wait for one of the cells (list.line_judged): the check may wait behind
// them, unless something else denies it.
void decide_by_line(const ChargeList& list, CheckDecision& decision) noexcept;

}  // namespace headgate::engine
