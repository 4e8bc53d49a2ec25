// Reads typed values out of nodes. Whatever does not fit becomes a problem at its place, and the value keeps its
// default.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/scope.h"

namespace headgate::policy {

// "a, b or c".
[[nodiscard]] std::string one_of(std::span<const std::string> words);

// One mapping. Keys that are not among the allowed are problems, as is a node of another kind.
class MapFields {
 public:
  // `what` is how messages call it: "limit", "match".
  MapFields(const Scope& scope, const Node& node, std::string what, std::initializer_list<std::string_view> allowed);
  // REQUIRES: what it is made of outlives it.
  [[nodiscard]] const Node* get(std::string_view key) const noexcept {
    return node_.is_mapping() ? node_.find(key) : nullptr;
  }
  // As get(), and a problem if the key is absent.
  [[nodiscard]] const Node* require(std::string_view key) const;
  [[nodiscard]] const Entry* entry(std::string_view key) const noexcept;
  [[nodiscard]] bool is_mapping() const noexcept { return node_.is_mapping(); }

 private:
  const Scope& scope_;
  const Node& node_;
  std::string what_;
};

// Reports an unknown key, with what may have been meant.
void unknown_key(const Scope& scope, const Entry& key, std::string_view what, std::span<const std::string> allowed);

// Each takes the field's name for messages and a node that may be null (an absent key, which leaves `out` alone), and
// says whether `out` was set.
bool read_string(const Scope& scope, const Node* node, std::string_view field, std::size_t most, std::string& out);
bool read_bool(const Scope& scope, const Node* node, std::string_view field, bool& out);

struct WholeRange {
  std::int64_t least;
  std::int64_t most;
};
bool read_whole(const Scope& scope, const Node* node, std::string_view field, WholeRange range, std::int64_t& out);

// 0.1 or 10%, within [least, most].
struct Range {
  double least;
  double most;
  bool above = false;  // least itself is not within
};
bool read_fraction(const Scope& scope, const Node* node, std::string_view field, Range range, double& out);

struct Span {
  Nanos least;
  Nanos most;
};
bool read_duration(const Scope& scope, const Node* node, std::string_view field, Span range, Nanos& out);

// The index of the word among `words`.
std::optional<std::size_t> read_choice(const Scope& scope, const Node* node, std::string_view field,
                                       std::span<const std::string> words);

// An enumeration by the names that to_string gives its first `kCount` values.
template <class Enum, int kCount>
bool read_enum(const Scope& scope, const Node* node, std::string_view field, Enum& out) {
  std::vector<std::string> words;
  words.reserve(kCount);
  for (int i = 0; i < kCount; ++i) words.emplace_back(to_string(static_cast<Enum>(i)));
  const auto index = read_choice(scope, node, field, words);
  if (index) out = static_cast<Enum>(*index);
  return index.has_value();
}

// A list, or one value as a list of one. Null for a mapping or nothing, which is a problem.
std::optional<std::vector<const Node*>> read_list(const Scope& scope, const Node* node, std::string_view field);

}  // namespace headgate::policy
