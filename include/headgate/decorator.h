// Wraps any callable so that it runs only when a limiter allows it.
//
//   auto fetch = limited(fetch_page, limiter,
//                        DecoratorOptions()
//                            .key([](const Request& request) { return request.agent; })
//                            .permits([](const Request& request) { return request.pages; })
//                            .on_limited([](const Decision& decision, const Request&) { log(decision.retry_after); })
//                            .queue(2s));
//   if (auto page = fetch(request)) use(*page);
#pragma once

#include <cassert>
#include <concepts>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "headgate/limiter.h"

namespace headgate {

// What a limited call came to: the Decision and, if it was allowed, what the callable returned, be it a value, a
// reference or nothing.
template <class R>
class [[nodiscard]] Limited {
 public:
  // Not called.
  explicit Limited(const Decision& decision) : decision_(decision) {}
  // Called. The result is built in place, so R need not be movable.
  template <std::invocable Call>
  Limited(const Decision& decision, Call&& call) : decision_(decision) {
    if constexpr (std::is_reference_v<R>) {
      R&& result = call();
      result_ = std::addressof(result);
    } else {
      result_.emplace(call);
    }
  }

  [[nodiscard]] const Decision& decision() const noexcept { return decision_; }
  [[nodiscard]] bool called() const noexcept { return static_cast<bool>(result_); }
  explicit operator bool() const noexcept { return called(); }

  // REQUIRES: called().
  [[nodiscard]] auto& value() & noexcept { return get(*this); }
  [[nodiscard]] auto& value() const& noexcept { return get(*this); }
  [[nodiscard]] R&& value() && noexcept { return static_cast<R&&>(get(*this)); }
  [[nodiscard]] auto& operator*() & noexcept { return get(*this); }
  [[nodiscard]] auto& operator*() const& noexcept { return get(*this); }
  [[nodiscard]] R&& operator*() && noexcept { return static_cast<R&&>(get(*this)); }
  auto* operator->() noexcept { return std::addressof(get(*this)); }
  auto* operator->() const noexcept { return std::addressof(get(*this)); }

  template <class Other>
  [[nodiscard]] std::decay_t<R> value_or(Other&& other) const& {
    if (!called()) return static_cast<std::decay_t<R>>(std::forward<Other>(other));
    return get(*this);
  }
  template <class Other>
  [[nodiscard]] std::decay_t<R> value_or(Other&& other) && {
    if (!called()) return static_cast<std::decay_t<R>>(std::forward<Other>(other));
    return static_cast<R&&>(get(*this));
  }

 private:
  struct Box {
    template <class Call>
    explicit Box(Call& call) : value(call()) {}
    R value;
  };
  template <class Self>
  static auto& get(Self& self) noexcept {
    assert(self.called());
    if constexpr (std::is_reference_v<R>) {
      return *self.result_;
    } else {
      return self.result_->value;
    }
  }

  Decision decision_;
  std::conditional_t<std::is_reference_v<R>, std::remove_reference_t<R>*, std::optional<Box>> result_{};
};

template <>
class [[nodiscard]] Limited<void> {
 public:
  explicit Limited(const Decision& decision) : decision_(decision) {}
  template <std::invocable Call>
  Limited(const Decision& decision, Call&& call) : decision_(decision), called_(true) {
    call();
  }

  [[nodiscard]] const Decision& decision() const noexcept { return decision_; }
  [[nodiscard]] bool called() const noexcept { return called_; }
  explicit operator bool() const noexcept { return called_; }

 private:
  Decision decision_;
  bool called_ = false;
};

namespace detail {

// Stands for "nobody wants to be told".
struct TellNobody {};

// Gives a concurrency lease back when the call ends, however it ends. The key is kept only if there is a lease: the
// callable may have moved from the argument that it was part of. A Limiter that cannot release keeps the lease until it
// expires.
template <class L>
class LeaseGuard {
 public:
  LeaseGuard(L& limiter, std::string_view key, LeaseId lease)
      : limiter_(limiter), lease_(lease), key_(lease != 0 ? key : std::string_view{}) {}
  LeaseGuard(const LeaseGuard&) = delete;
  LeaseGuard& operator=(const LeaseGuard&) = delete;
  ~LeaseGuard() {
    if (lease_ == 0) return;
    if constexpr (requires { limiter_.release(key_, lease_); }) limiter_.release(key_, lease_);
  }

 private:
  L& limiter_;
  LeaseId lease_;
  std::string key_;
};

// Blocks for as long as the clock takes, also if it is one that is moved by hand.
class Sleep final : private ClockListener {
 public:
  Sleep(Clock& clock, Nanos span) : clock_(clock) {
    if (span <= Nanos{0}) return;
    const Nanos until = clock_.now() + span;
    clock_.subscribe(this);
    {
      std::unique_lock lock(mutex_);
      while (clock_.now() < until) clock_.wait(lock, wake_, until);
    }
    clock_.unsubscribe(this);
  }

 private:
  void clock_moved() noexcept override {
    const std::lock_guard guard(mutex_);
    wake_.notify_all();
  }

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace detail

// How a callable is limited. Each setter returns options whose type remembers what it was given, so that a call goes
// through no std::function; set them in one sentence.
//
// Selectors and the callback are called as const, with the call's arguments as const.
template <class Key = std::string, class Permits = Units, class OnLimited = detail::TellNobody>
class DecoratorOptions {
 public:
  DecoratorOptions() requires std::same_as<Permits, Units> : permits_(1) {}

  // What the calls are counted under: a name, or a callable over the arguments whose result converts to
  // std::string_view or std::string. Default: the empty key for all calls.
  template <class K>
  [[nodiscard]] auto key(K&& key) && {
    if constexpr (std::convertible_to<K, std::string_view> || std::convertible_to<K, std::string>) {
      return with(std::string(std::forward<K>(key)), std::move(permits_), std::move(on_limited_));
    } else {
      return with(std::decay_t<K>(std::forward<K>(key)), std::move(permits_), std::move(on_limited_));
    }
  }
  // How much a call costs: a number, or a callable over the arguments. Default: 1.
  template <class P>
  [[nodiscard]] auto permits(P&& permits) && {
    if constexpr (std::convertible_to<P, Units>) {
      return with(std::move(key_), static_cast<Units>(permits), std::move(on_limited_));
    } else {
      return with(std::move(key_), std::decay_t<P>(std::forward<P>(permits)), std::move(on_limited_));
    }
  }
  // Called instead of the callable when the limiter says no: with the Decision and the arguments, or the Decision
  // alone.
  template <class F>
  [[nodiscard]] auto on_limited(F&& callback) && {
    return with(std::move(key_), std::move(permits_), std::decay_t<F>(std::forward<F>(callback)));
  }

  // Says no at once when the limit is exceeded. The default.
  [[nodiscard]] DecoratorOptions reject() && {
    max_wait_.reset();
    return std::move(*this);
  }
  // Blocks for up to max_wait until there is room, in the limiter's order: higher priority first, then arrival.
  [[nodiscard]] DecoratorOptions queue(Nanos max_wait, int priority = 0) && {
    max_wait_ = max_wait;
    priority_ = priority;
    return std::move(*this);
  }
  // An allowed call may be told to act later: a leaky bucket spaces its calls by Decision::delay. By default the
  // callable runs at once and the delay is left to whoever reads the result. With this, the call blocks for the delay
  // on `clock`, which should be the limiter's and must outlive the limited callable, and then runs. The time in a queue
  // comes on top; what bounds the delay is the bucket's own queue.
  [[nodiscard]] DecoratorOptions wait_out_delay(Clock& clock = SystemClock::shared()) && {
    delay_clock_ = &clock;
    return std::move(*this);
  }

 private:
  template <class, class, class>
  friend class DecoratorOptions;
  template <class, std::derived_from<Limiter>, class>
  friend class LimitedCallable;

  DecoratorOptions(Key key, Permits permits, OnLimited on_limited)
      : key_(std::move(key)), permits_(std::move(permits)), on_limited_(std::move(on_limited)) {}

  template <class K, class P, class O>
  DecoratorOptions<K, P, O> with(K key, P permits, O on_limited) const {
    DecoratorOptions<K, P, O> options(std::move(key), std::move(permits), std::move(on_limited));
    options.max_wait_ = max_wait_;
    options.priority_ = priority_;
    options.delay_clock_ = delay_clock_;
    return options;
  }

  template <class... Args>
  [[nodiscard]] decltype(auto) key_of(const Args&... args) const {
    if constexpr (std::same_as<Key, std::string>) {
      return std::string_view(key_);
    } else {
      static_assert(std::invocable<const Key&, const Args&...>,
                    "the key selector must be callable, as const, with the call's arguments as const");
      using Selected = std::invoke_result_t<const Key&, const Args&...>;
      if constexpr (std::convertible_to<Selected, std::string_view>) {
        return std::invoke(key_, args...);
      } else {
        static_assert(std::convertible_to<Selected, std::string>,
                      "the key selector's result must convert to std::string_view or std::string");
        return static_cast<std::string>(std::invoke(key_, args...));
      }
    }
  }

  template <class... Args>
  [[nodiscard]] Units permits_of(const Args&... args) const {
    if constexpr (std::same_as<Permits, Units>) {
      return permits_;
    } else {
      static_assert(std::is_invocable_r_v<Units, const Permits&, const Args&...>,
                    "permits must be a number, or callable, as const, with the call's arguments as const");
      return std::invoke(permits_, args...);
    }
  }

  template <class... Args>
  void tell(const Decision& decision, const Args&... args) const {
    if constexpr (std::same_as<OnLimited, detail::TellNobody>) {
      return;
    } else if constexpr (std::invocable<const OnLimited&, const Decision&, const Args&...>) {
      std::invoke(on_limited_, decision, args...);
    } else {
      static_assert(std::invocable<const OnLimited&, const Decision&>,
                    "on_limited must be callable, as const, with the Decision, and perhaps the arguments as const");
      std::invoke(on_limited_, decision);
    }
  }

  Key key_;
  Permits permits_;
  OnLimited on_limited_;
  std::optional<Nanos> max_wait_;  // none: reject
  int priority_ = 0;
  Clock* delay_clock_ = nullptr;  // none: the delay is passed on
};

// A callable behind a limiter; made by limited(). As safe for concurrent use as the callable, the selectors and the
// callback are. Adds to the limiter's own cost nothing that allocates, but for a long key's copy while a lease is held.
//
// Permits once taken stay taken, also if the callable throws: the attempt has been made, and what it cost others is not
// undone. Only concurrency leases come back, since they count what is running. An exception passes through.
template <class F, std::derived_from<Limiter> L, class Options>
class LimitedCallable {
 public:
  // REQUIRES: the limiter outlives this.
  LimitedCallable(F callable, L& limiter, Options options)
      : callable_(std::move(callable)), limiter_(&limiter), options_(std::move(options)) {}

  template <class... Args>
  auto operator()(Args&&... args) -> Limited<std::invoke_result_t<F&, Args...>> {
    return run(callable_, std::forward<Args>(args)...);
  }
  template <class... Args>
  auto operator()(Args&&... args) const -> Limited<std::invoke_result_t<const F&, Args...>> {
    return run(callable_, std::forward<Args>(args)...);
  }

 private:
  template <class Callable, class... Args>
  auto run(Callable& callable, Args&&... args) const -> Limited<std::invoke_result_t<Callable&, Args...>> {
    using R = std::invoke_result_t<Callable&, Args...>;
    const auto& selected = options_.key_of(args...);  // kept until the call is over: the view may be into it
    const std::string_view key(selected);
    const Decision decision = ask(key, options_.permits_of(args...));
    if (!decision.allowed()) {
      options_.tell(decision, args...);
      return Limited<R>(decision);
    }
    const detail::LeaseGuard<L> guard(*limiter_, key, decision.lease);
    if (options_.delay_clock_ != nullptr) detail::Sleep(*options_.delay_clock_, decision.delay);
    return Limited<R>(decision, [&]() -> R { return std::invoke(callable, std::forward<Args>(args)...); });
  }

  Decision ask(std::string_view key, Units permits) const {
    if (!options_.max_wait_) return limiter_->try_acquire(key, permits);
    return limiter_->acquire(key, {permits, *options_.max_wait_, options_.priority_});
  }

  F callable_;
  L* limiter_;
  Options options_;
};

// Any callable, member functions included. The limiter must outlive the result.
template <class F, std::derived_from<Limiter> L, class Options = DecoratorOptions<>>
[[nodiscard]] auto limited(F&& callable, L& limiter, Options options = {}) {
  return LimitedCallable<std::decay_t<F>, L, Options>(std::forward<F>(callable), limiter, std::move(options));
}

}  // namespace headgate
