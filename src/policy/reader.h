// Reads policy documents: the native form in YAML or JSON, and the shapes of others (see docs/reference/policies.md).
//
// Everything wrong with a document is told at once. Nothing here throws; sizes and depths are bounded.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/model.h"

namespace headgate::policy {

// One thing that is wrong, and where.
struct Problem {
  Place place;
  std::string message;  // what must hold, what came
  // "policies/ui.yaml:14:9: policy "ui-search": window must be between 1ms and 10y, got 0s"
  [[nodiscard]] std::string text() const;
};

struct ReadResult {
  Document document;              // meaningful only without problems
  std::vector<Problem> problems;  // in order of file, line, column; at most kMaxProblems and a last line that says so
  std::vector<Problem> notes;     // accepted, but worth saying (a setting that belongs elsewhere)
  [[nodiscard]] bool ok() const noexcept { return problems.empty(); }
};

inline constexpr std::size_t kMaxProblems = 100;
inline constexpr std::size_t kMaxDocumentBytes = 16 << 20;
inline constexpr std::size_t kMaxPolicies = 100'000;
inline constexpr int kMaxDepth = 32;

// One document. `file` is its name in messages. Without variables: see Text.
[[nodiscard]] ReadResult read_text(std::string_view text, std::string_view file);

// Files and directories (their *.yaml, *.yml and *.json in order of name, not deeper), taken together as one document.
[[nodiscard]] ReadResult read_paths(const std::vector<std::string>& paths);

// One of several texts.
struct Text {
  std::string file;  // its name in messages
  std::string text;
  bool replaces = false;   // its policies take the place of earlier ones with their ids
  bool variables = false;  // `${NAME}` is read from the environment; otherwise it is a problem
  friend bool operator==(const Text&, const Text&) = default;
};
// Taken together as one document, but for the policies with these ids.
[[nodiscard]] ReadResult read_texts(std::span<const Text> texts, const std::set<std::string>& without = {});

// What read_paths() reads, before it is read. Files may have variables, and are marked where they do.
struct Gathered {
  std::vector<Text> texts;
  std::vector<Problem> problems;  // files that could not be read
};
[[nodiscard]] Gathered gather(const std::vector<std::string>& paths);

}  // namespace headgate::policy
