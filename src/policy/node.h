// A document as a tree, before anyone asks what it means: every value and key knows its line and column.
//
// YAML and JSON are read by the same parser. Size, depth and the number of nodes that aliases stand for are bounded, so
// code that walks a tree may recurse.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "policy/variables.h"

namespace headgate::policy {

inline constexpr std::size_t kMaxNodes = 2'000'000;  // with every alias counted as what it stands for
inline constexpr std::size_t kMaxDocuments = 1'000;  // of one stream

struct Node;

struct Entry {
  std::string key;
  int line = 0;
  int column = 0;
  const Node* value = nullptr;
};

struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  bool quoted = false;  // a scalar in quotes is text whatever it looks like
  std::uint8_t height = 0;
  int line = 0;  // from 1; columns count characters, not bytes
  int column = 0;
  std::size_t nodes = 1;           // it and all below it
  std::string text;                // kScalar
  std::vector<const Node*> items;  // kSequence
  std::vector<Entry> entries;      // kMapping, in written order, no key twice

  [[nodiscard]] bool is_null() const noexcept { return kind == Kind::kNull; }
  [[nodiscard]] bool is_scalar() const noexcept { return kind == Kind::kScalar; }
  [[nodiscard]] bool is_sequence() const noexcept { return kind == Kind::kSequence; }
  [[nodiscard]] bool is_mapping() const noexcept { return kind == Kind::kMapping; }
  [[nodiscard]] bool is_boolean() const noexcept;  // true or false, not in quotes
  [[nodiscard]] bool is_true() const noexcept;
  [[nodiscard]] const Node* find(std::string_view key) const noexcept;  // the value, or nullptr
};

// Same kinds and texts, wherever they stand.
[[nodiscard]] bool same(const Node& a, const Node& b) noexcept;

// For messages: `"text"`, `12`, `a list`, `a mapping` or `nothing`.
[[nodiscard]] std::string shown(const Node& node);

// What is wrong with the text itself.
struct Flaw {
  int line = 0;
  int column = 0;
  std::string message;
};

struct Tree {
  std::deque<Node> nodes;          // owns them; addresses stay
  std::vector<const Node*> roots;  // one for each document of the stream, none for an empty text
  std::vector<Flaw> flaws;         // the tree is whole only without any
};

// Never throws for what the text holds. Variables are looked for in values, not in keys; one that is not set is a flaw.
[[nodiscard]] Tree parse(std::string_view text, Expand variables = Expand::kNo);

}  // namespace headgate::policy
