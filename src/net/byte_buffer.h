// Bytes that wait for more of their kind, with Session::kSlack readable ones after them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <string_view>

#include "net/session.h"

namespace headgate::net {

// Grows by doubling; the caller bounds it. Holds no memory while empty and released.
class ByteBuffer {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {data_.get(), size_}; }

  // REQUIRES: `bytes` is not part of this buffer.
  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    assert(bytes.data() + bytes.size() <= data_.get() || bytes.data() >= data_.get() + capacity_);
    if (size_ + bytes.size() > capacity_) grow(size_ + bytes.size());
    std::memcpy(data_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // Takes `count` bytes out from position `at` on.
  void erase(std::size_t at, std::size_t count) noexcept {
    if (count == 0) return;
    std::memmove(data_.get() + at, data_.get() + at + count, size_ - at - count);
    size_ -= count;
  }
  void clear() noexcept { size_ = 0; }
  void release() noexcept {
    data_.reset();
    size_ = capacity_ = 0;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  void grow(std::size_t needed) {
    const std::size_t capacity = std::max(needed, capacity_ * 2);
    auto data = std::make_unique<char[]>(capacity + Session::kSlack);
    if (size_ != 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace headgate::net
