// A remote store over cells in memory that answers when the fuzzer says so, in the order that it says.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "store/memory/memory_store.h"
#include "store/remote_store.h"

namespace headgate::test {

class HeldRemote final : public store::RemoteStore {
 public:
  explicit HeldRemote(Clock& clock) : clock_(clock), cells_({.seed = 1}) {}

  void apply(std::span<const store::Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             Done done) override {
    const auto answer = [=, this](bool away) {
      if (away) return done(Error{ErrorCode::kIo, "no answer", true});
      store::Ask now = ask;
      now.now = clock_.now();
      now.wall = clock_.wall(now.now);
      done(Answer{cells_.apply(charges, now, outcomes), now.now});
    };
    if (at_once) return answer(false);
    held_.push_back(answer);
  }
  void refund(const store::Charge& charge, Nanos charged_at, Told) override {
    cells_.refund(charge, charged_at, clock_.now());
  }
  void release(const store::Charge& charge, LeaseId lease, Told) override {
    cells_.release(charge, lease, clock_.now());
  }
  void renew(const store::Charge& charge, LeaseId lease, Told) override { cells_.renew(charge, lease, clock_.now()); }
  [[nodiscard]] Nanos now_approx() const noexcept override { return clock_.now(); }

  bool at_once = false;  // for callers that wait for the answer
  [[nodiscard]] std::size_t held() const noexcept { return held_.size(); }
  // Answers one of those that are held, by any number. False: there is none.
  bool answer(std::size_t which, bool away = false) {
    if (held_.empty()) return false;
    const auto at = held_.begin() + static_cast<std::ptrdiff_t>(which % held_.size());
    const std::function<void(bool)> next = std::move(*at);
    held_.erase(at);
    next(away);
    return true;
  }

 private:
  Clock& clock_;
  store::MemoryStore cells_;
  std::vector<std::function<void(bool)>> held_;
};

}  // namespace headgate::test
