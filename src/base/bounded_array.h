// A short list whose room is part of it, and is not touched before it is used.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace headgate::base {

template <class T, std::size_t kMost>
class BoundedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  BoundedArray() noexcept {}  // NOLINT(modernize-use-equals-default): = default would clear the room
  BoundedArray(const BoundedArray& other) noexcept { *this = other; }
  BoundedArray& operator=(const BoundedArray& other) noexcept {
    if (this == &other) return *this;
    size_ = other.size_;
    for (std::uint32_t i = 0; i < size_; ++i) new (data() + i) T(other[i]);
    return *this;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool full() const noexcept { return size_ == kMost; }
  T* data() noexcept { return reinterpret_cast<T*>(room_); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(room_); }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

  // REQUIRES: !full().
  T& emplace_back() noexcept {
    assert(!full());
    return *new (data() + size_++) T;
  }
  void append(const T& value) noexcept {
    assert(!full());
    new (data() + size_++) T(value);
  }
  // REQUIRES: there is room for all of them.
  template <std::size_t kTheirMost>
  void append(const BoundedArray<T, kTheirMost>& values) noexcept {
    assert(values.size() <= kMost - size_);
    T* at = end();
    for (const T& value : values) new (at++) T(value);
    size_ += static_cast<std::uint32_t>(values.size());
  }
  void pop_back() noexcept { --size_; }
  // Gives n elements that are yet to be written. REQUIRES: n <= kMost.
  void grow_to(std::size_t n) noexcept {
    assert(n <= kMost);
    size_ = static_cast<std::uint32_t>(n);
  }

 private:
  alignas(T) std::byte room_[kMost * sizeof(T)];  // NOLINT(bugprone-sizeof-expression): of pointers, too
  std::uint32_t size_ = 0;
};

}  // namespace headgate::base
