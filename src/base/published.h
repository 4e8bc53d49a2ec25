// A value that is replaced whole while many threads read it.
//
// A reader pins the current value and reads it for as long as it holds the pin; nobody waits for anybody. A value that
// was replaced is freed by a later publish() or reclaim(), once nobody pins it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/thread_slot.h"

namespace headgate::base {

template <class T>
class Published {
 public:
  // As many values may be alive at once: the current one and older ones that somebody still pins.
  static constexpr std::size_t kVersions = 64;

  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept
        : value_(std::exchange(other.value_, nullptr)), count_(std::exchange(other.count_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(value_, other.value_);
      std::swap(count_, other.count_);
      return *this;
    }
    ~Pin() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_release);
    }
    [[nodiscard]] const T* get() const noexcept { return value_; }
    const T& operator*() const noexcept { return *value_; }
    const T* operator->() const noexcept { return value_; }
    explicit operator bool() const noexcept { return value_ != nullptr; }

   private:
    friend class Published;
    Pin(const T* value, std::atomic<std::uint32_t>* count) noexcept : value_(value), count_(count) {}
    const T* value_ = nullptr;
    std::atomic<std::uint32_t>* count_ = nullptr;
  };

  explicit Published(std::unique_ptr<const T> first) { values_[0] = std::move(first); }

  [[nodiscard]] Pin pin() const noexcept {
    auto& counts = counts_[thread_slot()].of;
    for (;;) {
      const std::uint32_t version = current_.load(std::memory_order_acquire);
      counts[version].fetch_add(1, std::memory_order_seq_cst);
      // If it is still current now, whoever replaces it will see the count; if not, the value may be gone.
      if (current_.load(std::memory_order_seq_cst) == version) return {values_[version].get(), &counts[version]};
      counts[version].fetch_sub(1, std::memory_order_release);
    }
  }

  // False: as many old values are pinned as there may be, and the current one stays. Publishers take turns.
  [[nodiscard]] bool publish(std::unique_ptr<const T> next) {
    const std::lock_guard guard(mutex_);
    const std::uint32_t before = current_.load();
    for (std::uint32_t version = 0; version < kVersions; ++version) {
      if (version == before || pinned(version)) continue;
      values_[version] = std::move(next);
      current_.store(version, std::memory_order_seq_cst);
      free_old();
      return true;
    }
    return false;
  }

  void reclaim() {
    const std::lock_guard guard(mutex_);
    free_old();
  }

 private:
  struct alignas(64) Counts {
    std::array<std::atomic<std::uint32_t>, kVersions> of{};
  };

  [[nodiscard]] bool pinned(std::uint32_t version) const noexcept {
    for (const Counts& counts : counts_) {
      if (counts.of[version].load(std::memory_order_seq_cst) != 0) return true;
    }
    return false;
  }
  void free_old() {
    for (std::uint32_t version = 0; version < kVersions; ++version) {
      if (version != current_.load() && values_[version] != nullptr && !pinned(version)) values_[version].reset();
    }
  }

  mutable std::array<Counts, kThreadSlots> counts_;
  std::atomic<std::uint32_t> current_{0};
  std::array<std::unique_ptr<const T>, kVersions> values_;
  std::mutex mutex_;
};

}  // namespace headgate::base
