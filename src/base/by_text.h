// A hash map by text that is looked up without making a std::string of what is sought.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headgate::base {

struct TextHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};

// References to what is in it stay good until that is erased.
template <class T>
using ByText = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

}  // namespace headgate::base
