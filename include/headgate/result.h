// Result<T> is a value or an Error, shaped like std::expected (which C++20 does not have yet).
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace headgate {

enum class ErrorCode {
  kInvalidArgument,  // what came can never work; the message names the field and the range
  kCorrupt,          // a file that is torn, foreign or of another version
  kIo,               // the operating system said no
  kNotFound,         // what was named does not exist, or no longer
  kForbidden,        // it belongs to somebody else
  kTimedOut,         // the other side is reachable, but did not answer in time
  kOverloaded,       // this side has too many calls waiting: the call was not sent
};

// Why a call could not be answered. A denial is not an error: it is a Decision.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;     // where, what must hold, what came
  bool transient = false;  // true: the same call may succeed later
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  // REQUIRES: has_value().
  T& value() & noexcept {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& noexcept {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && noexcept {
    assert(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }
  T&& operator*() && noexcept { return std::move(*this).value(); }
  T* operator->() noexcept {
    assert(has_value());
    return std::get_if<0>(&state_);
  }
  const T* operator->() const noexcept {
    assert(has_value());
    return std::get_if<0>(&state_);
  }

  // REQUIRES: !has_value().
  const Error& error() const& noexcept {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && noexcept {
    assert(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  [[nodiscard]] bool has_value() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  // REQUIRES: !has_value().
  const Error& error() const& noexcept {
    assert(!has_value());
    return error_;
  }
  Error&& error() && noexcept {
    assert(!has_value());
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace headgate
