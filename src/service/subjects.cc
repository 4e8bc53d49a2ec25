#include "service/subjects.h"

#include <fmt/format.h>

#include <cassert>

#include "base/utf8.h"

namespace headgate::service {
namespace {

using state::Bound;

struct Kind {
  Bound bound;
  const char* name;
  std::string_view Check::*field;
  std::string Caller::*own;
};
constexpr Kind kKinds[] = {{Bound::kAgent, "agent", &Check::agent, &Caller::agent},
                           {Bound::kUser, "user", &Check::user, &Caller::user},
                           {Bound::kTenant, "tenant", &Check::tenant, &Caller::tenant}};

Refusal refusal_of(std::string_view code, std::string message) { return {403, code, std::move(message), Nanos{0}}; }

std::string_view code_of(Bound kind) noexcept { return kind == Bound::kAgent ? "wrong_agent" : "wrong_subject"; }

Refusal not_its_own(std::string_view code, const Caller& caller, std::string_view kind, std::string_view own,
                    std::string_view named) {
  return refusal_of(code, fmt::format("{} speaks for {} \"{}\" only, got \"{}\"", caller.who, kind, own,
                                      base::shortened(named, 100)));
}

}  // namespace

std::optional<Refusal> Subjects::may_name(const Caller& caller, Bound kind, std::string_view name) const {
  assert(!name.empty());
  const Kind& of = kKinds[static_cast<std::size_t>(kind)];
  if (const std::string& own = caller.*of.own; !own.empty()) {
    if (own == name) return std::nullopt;
    return not_its_own(code_of(kind), caller, of.name, own, name);
  }
  if (caller.speaks_for_others() || !tokens_.binds_any(kind)) return std::nullopt;
  if (!tokens_.is_bound(kind, name, clock_.wall(clock_.now()))) return std::nullopt;
  return refusal_of(code_of(kind), fmt::format("{} \"{}\" is bound to another token; role gateway speaks for others",
                                               of.name, base::shortened(name, 100)));
}

std::optional<Refusal> Subjects::prove_token(const Caller& caller, Check& check) const {
  for (const Kind& kind : kKinds) {
    if ((check.*kind.field).empty()) {
      check.*kind.field = caller.*kind.own;
    } else if (auto refusal = may_name(caller, kind.bound, check.*kind.field)) {
      return refusal;
    }
  }
  if (check.plan.empty()) {
    check.plan = caller.plan;
  } else if (!caller.plan.empty()) {
    if (check.plan != caller.plan) return not_its_own("wrong_subject", caller, "plan", caller.plan, check.plan);
  } else if (!caller.speaks_for_others()) {
    return refusal_of("forbidden",
                      "plan may be named by roles admin and gateway, or with a token that binds it; leave it out");
  }
  if (check.priority > 0 && !caller.speaks_for_others()) {
    return refusal_of(
        "forbidden",
        fmt::format("a priority above 0 may be given by roles admin and gateway only, got {}", check.priority));
  }
  return std::nullopt;
}

std::optional<Refusal> Subjects::prove_parent(const Caller& caller, const Check& check) {
  const std::string_view agent = check.parent_agent.empty() ? check.agent : check.parent_agent;
  if (agent.empty()) {
    if (!caller.known || !owners_.has_owner(check.parent_session)) return std::nullopt;
    return refusal_of("wrong_subject",
                      fmt::format("parent: session \"{}\" belongs to an agent, and the check names none",
                                  base::shortened(check.parent_session, 100)));
  }
  if (auto refusal = may_name(caller, Bound::kAgent, agent)) {
    refusal->message = "parent: " + refusal->message;
    return refusal;
  }
  const bool fits =
      check.peek ? owners_.may_belong_to(check.parent_session, agent) : owners_.belongs_to(check.parent_session, agent);
  if (fits) return std::nullopt;
  return refusal_of("wrong_subject",
                    fmt::format("parent: session \"{}\" was first used by another agent than \"{}\"; role gateway may "
                                "name it",
                                base::shortened(check.parent_session, 100), base::shortened(agent, 100)));
}

std::optional<Refusal> Subjects::prove(const Caller& caller, Check& check) {
  if (caller.known) {
    if (auto refusal = prove_token(caller, check)) return refusal;
  }
  // Where no agent is proven, a session that belongs to one is worth nothing, and nothing is noted.
  const bool proven = caller.known && !caller.agent.empty();
  if (check.session.empty() && check.parent_session.empty()) return std::nullopt;
  if (!proven && !tokens_.binds_any(Bound::kAgent)) return std::nullopt;
  if (!check.parent_session.empty() && !caller.speaks_for_others()) {
    if (auto refusal = prove_parent(caller, check)) return refusal;
  }
  // A peek uses nothing, so it owns nothing.
  if (!check.peek && !check.session.empty() && !check.agent.empty())
    (void)owners_.belongs_to(check.session, check.agent);
  return std::nullopt;
}

}  // namespace headgate::service
