// Reading texts, for tests of policies.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "policy/reader.h"

namespace headgate::policy::test {

inline std::vector<std::string> texts(const std::vector<Problem>& problems) {
  std::vector<std::string> out;
  for (const Problem& problem : problems) out.push_back(problem.text());
  return out;
}

// The problems of a text, one a line, without the file's name.
inline std::string problems(std::string_view text) {
  std::string out;
  for (const std::string& line : texts(read_text(text, "f").problems)) {
    if (!out.empty()) out += '\n';
    out += line.starts_with("f:") ? line.substr(2) : line;
  }
  return out;
}

// A document that must be right.
inline Document document(std::string_view text) {
  ReadResult result = read_text(text, "f");
  EXPECT_EQ(texts(result.problems), std::vector<std::string>{}) << text;
  return std::move(result.document);
}

// Its only policy.
inline Policy policy(std::string_view text) {
  Document read = document(text);
  EXPECT_EQ(read.policies.size(), 1U) << text;
  return read.policies.empty() ? Policy{} : read.policies.front();
}

// A policy with these lines besides its id.
inline std::string with(const std::string& lines, const std::string& limit = "limit: 1/s") {
  std::string text = "policies:\n  - id: p\n";
  if (!limit.empty()) text += "    " + limit + "\n";
  std::size_t at = 0;
  while (at < lines.size()) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    text += "    " + lines.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

// How the limits of `limit: <text>` read, or what is wrong with them.
inline std::string limit(const std::string& text, const std::string& unit = "requests") {
  const ReadResult result = read_text(with("unit: " + unit, "limit: " + text), "f");
  std::string out;
  if (!result.ok()) {
    for (const std::string& line : texts(result.problems)) out += (out.empty() ? "" : "\n") + line.substr(2);
    return out;
  }
  const Policy& policy = result.document.policies.at(0);
  for (const Limit& each : policy.limits) out += (out.empty() ? "" : "; ") + describe(policy, each);
  return out;
}

}  // namespace headgate::policy::test
