// The Matcher turns a check into its charge list: which policies match it, and which of their cells it charges.
//
// Safe for concurrent use. What matched is remembered by each thread (see Recall), so a check that comes again is not
// matched again. Allocates nothing but each thread's memory.
#pragma once

#include "engine/allowances.h"
#include "engine/charge_list.h"
#include "engine/check_decision.h"
#include "engine/recall.h"
#include "policy/check_fields.h"
#include "store/memory/memory_store.h"

namespace headgate::engine {

class Matcher {
 public:
  // Cells of `store` are fetched ahead.
  explicit Matcher(const store::MemoryStore& store) noexcept : store_(store) {}

  // Adds what the matching policies charge; false: there are too many of them. `parent`: the fields are those of the
  // check's parent, and cells that are charged already are left out.
  [[nodiscard]] bool add(const State& state, policy::Fields& fields, bool parent, ChargeList& list,
                         CheckDecision& decision);
  // Adds what the check brings along; false: that is too much.
  [[nodiscard]] static bool add(const Allowances& allowances, ChargeList& list, CheckDecision& decision);

 private:
  struct Remembered {
    Recall::Memory* memory = nullptr;
    std::uint64_t identity = 0;
  };
  // For a check that is not remembered, but will be where there is a memory.
  [[nodiscard]] bool add_matching(const State& state, policy::Fields& fields, bool parent, const Remembered& as,
                                  ChargeList& list, CheckDecision& decision);
  [[nodiscard]] bool add_legs(const State& state, policy::Fields& fields, const Recall::Memory::Known& known,
                              bool parent, ChargeList& list, CheckDecision& decision) const;
  // The same from a draft. REQUIRES: list and decision are empty.
  void follow(const Recall::Draft& draft, const base::Hash128* cells, ChargeList& list,
              CheckDecision& decision) const noexcept;
  // nullptr: there is none.
  [[nodiscard]] const Recall::Draft* draft_of(const State& state, policy::Fields& fields, const Route& route,
                                              Recall::Memory& memory);

  const store::MemoryStore& store_;
  Recall recall_;
};

}  // namespace headgate::engine
