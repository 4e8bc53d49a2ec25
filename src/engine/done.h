// Answers a check that is not answered at once: because it waits in line, or because a remote store has to be asked.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

namespace headgate::engine {

class CheckDecision;

class Done {
 public:
  using Answer = std::function<void(CheckDecision&)>;
  // Whether the caller may still be admitted. Called from any thread, several times, and until the check is answered;
  // must not call the engine. Once false, it stays false.
  using Valid = std::function<bool()>;

  Done() = default;
  template <class F>  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): not for Done itself
  requires(std::invocable<F&, CheckDecision&> && !std::same_as<std::remove_cvref_t<F>, Done>) Done(F&& answer)
      : answer_(std::forward<F>(answer)) {}  // NOLINT(google-explicit-constructor): as std::function's
  // No `valid`: the caller may always be admitted.
  Done(Answer answer, Valid valid) : answer_(std::move(answer)), valid_(std::move(valid)) {}

  void operator()(CheckDecision& decision) const { answer_(decision); }
  [[nodiscard]] bool is_valid() const { return !valid_ || valid_(); }
  [[nodiscard]] const Valid& valid() const noexcept { return valid_; }

 private:
  Answer answer_;
  Valid valid_;
};

}  // namespace headgate::engine
