#include "policy/scope.h"

#include <algorithm>
#include <tuple>

namespace headgate::policy {
namespace {

std::vector<Problem> sorted(std::vector<Problem> all, std::size_t dropped, const char* what) {
  std::stable_sort(all.begin(), all.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.place.file, a.place.line, a.place.column) < std::tie(b.place.file, b.place.line, b.place.column);
  });
  if (all.size() <= kMaxProblems && dropped == 0) return all;
  const std::size_t left_out = all.size() - std::min(all.size(), kMaxProblems) + dropped;
  if (all.size() > kMaxProblems) all.erase(all.begin() + kMaxProblems, all.end());
  Problem rest;
  rest.message = "and " + std::to_string(left_out) + " more " + what;
  all.push_back(std::move(rest));
  return all;
}

}  // namespace

void Report::add(std::vector<Problem>& to, std::size_t& dropped, Place place, std::string message) {
  if (to.size() < kMostKept) {
    to.push_back({std::move(place), std::move(message)});
  } else {
    ++dropped;
  }
}

std::vector<Problem> Report::take_problems() { return sorted(std::move(problems_), dropped_, "problems"); }
std::vector<Problem> Report::take_notes() { return sorted(std::move(notes_), dropped_notes_, "notes"); }

std::string text(const Place& place) {
  std::string where = place.file;
  if (place.line > 0) where += ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
  return where;
}

std::string Problem::text() const {
  const std::string where = policy::text(place);
  return where.empty() ? message : where + ": " + message;
}

}  // namespace headgate::policy
