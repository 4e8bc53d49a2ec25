// What the handles of the C ABI stand for, and the guard that every call goes through.
#pragma once

#include <memory>
#include <new>

#include "capi/convert.h"
#include "headgate/headgate.h"
#include "headgate/limiter.h"

namespace headgate::capi {

// What a limiter is made of. Reservations refer to it weakly, so that it goes when its owner frees it.
struct State {
  std::shared_ptr<ManualClock> manual;  // null: the machine's clock. Outlives the limiter below.
  std::unique_ptr<MemoryLimiter> limiter;

  [[nodiscard]] Nanos now() const noexcept { return manual ? manual->now() : SystemClock::shared().now(); }
};

// Runs the body of one call. Whatever it throws becomes a code: no exception may cross into C.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return HG_ERROR_NO_MEMORY;
  } catch (...) {
    return HG_ERROR_INTERNAL;
  }
}

template <class Body>
auto guarded(char* error, size_t error_size, Body&& body) noexcept -> decltype(body()) {
  write_text("", error, error_size);
  const auto answer = guarded(body);
  if (answer == HG_ERROR_NO_MEMORY || answer == HG_ERROR_INTERNAL) {
    write_text(hg_error_text(static_cast<int>(answer)), error, error_size);
  }
  return answer;
}

inline int fail(const Error& why, char* error, size_t error_size) noexcept {
  write_text(why.message, error, error_size);
  return to_c(why.code);
}

}  // namespace headgate::capi

struct hg_clock {
  std::shared_ptr<headgate::ManualClock> clock;
};

struct hg_limiter {
  std::shared_ptr<headgate::capi::State> state;
  [[nodiscard]] headgate::MemoryLimiter& operator*() const noexcept { return *state->limiter; }
  [[nodiscard]] headgate::MemoryLimiter* operator->() const noexcept { return state->limiter.get(); }
};

struct hg_reservation {
  std::weak_ptr<headgate::capi::State> state;
  headgate::Reservation reservation;
  bool cancelled = false;
};
