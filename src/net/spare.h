// Objects that are needed while bytes are being read and rarely in between: each thread keeps a few warm ones, so that
// an idle connection holds none and a busy one allocates none.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace headgate::net {

template <class T>
class Spare {
 public:
  [[nodiscard]] static std::unique_ptr<T> take() {
    Shelf& shelf = mine();
    if (shelf.count == 0) return std::make_unique<T>();
    return std::move(shelf.kept[--shelf.count]);
  }
  static void give_back(std::unique_ptr<T> object) noexcept {
    Shelf& shelf = mine();
    if (shelf.count < kKept) shelf.kept[shelf.count++] = std::move(object);
  }

 private:
  static constexpr std::size_t kKept = 4;  // more than one, since a handler may drive another session
  struct Shelf {
    std::array<std::unique_ptr<T>, kKept> kept;
    std::size_t count = 0;
  };
  static Shelf& mine() noexcept {
    thread_local Shelf shelf;
    return shelf;
  }
};

}  // namespace headgate::net
