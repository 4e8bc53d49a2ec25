// Where a reader is, and where it puts what it finds wrong.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "policy/node.h"
#include "policy/reader.h"

namespace headgate::policy {

// Collects problems and notes. Past kMostKept they are only counted.
class Report {
 public:
  static constexpr std::size_t kMostKept = 10'000;
  void problem(Place place, std::string message) { add(problems_, dropped_, std::move(place), std::move(message)); }
  void note(Place place, std::string message) { add(notes_, dropped_notes_, std::move(place), std::move(message)); }
  // Sorted and cut to kMaxProblems, with a last line that says how many are left out.
  [[nodiscard]] std::vector<Problem> take_problems();
  [[nodiscard]] std::vector<Problem> take_notes();

 private:
  static void add(std::vector<Problem>& to, std::size_t& dropped, Place place, std::string message);
  std::vector<Problem> problems_;
  std::vector<Problem> notes_;
  std::size_t dropped_ = 0;
  std::size_t dropped_notes_ = 0;
};

// A file and the part of it that is being read, which messages begin with: `policy "ui-search": `. Cheap to copy.
class Scope {
 public:
  Scope(Report& report, const std::string& file, std::string subject = "")
      : report_(&report), file_(&file), subject_(std::move(subject)) {}
  [[nodiscard]] Scope of(std::string subject) const { return {*report_, *file_, std::move(subject)}; }

  [[nodiscard]] Place place(const Node& node) const { return {*file_, node.line, node.column}; }
  [[nodiscard]] Place place(const Entry& key) const { return {*file_, key.line, key.column}; }
  void problem(const Node& node, const std::string& message) const { problem(place(node), message); }
  void problem(const Entry& key, const std::string& message) const { problem(place(key), message); }
  void problem(Place place, const std::string& message) const {
    report_->problem(std::move(place), subject_.empty() ? message : subject_ + ": " + message);
  }
  void note(const Node& node, const std::string& message) const {
    report_->note(place(node), subject_.empty() ? message : subject_ + ": " + message);
  }

 private:
  Report* report_;
  const std::string* file_;
  std::string subject_;
};

// `file:line:column`, as much of it as there is.
[[nodiscard]] std::string text(const Place& place);

}  // namespace headgate::policy
