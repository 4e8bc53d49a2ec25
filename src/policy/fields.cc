#include "policy/fields.h"

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "base/utf8.h"
#include "policy/number.h"

namespace headgate::policy {
namespace {

std::string named(std::string_view field) { return std::string(field); }

std::string shortest(double number) {
  std::string text = std::to_string(number);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string one_of(std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

void unknown_key(const Scope& scope, const Entry& key, std::string_view what, std::span<const std::string> allowed) {
  std::string message = "unknown key \"" + base::shortened(key.key, 64) + "\" in " + std::string(what);
  const std::string* meant = base::nearest(key.key, allowed);
  if (meant != nullptr) {
    message += "; did you mean \"" + *meant + "\"?";
  } else {
    message += "; it takes ";
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (i > 0) message += i + 1 == allowed.size() ? " and " : ", ";
      message += allowed[i];
    }
  }
  scope.problem(key, message);
}

MapFields::MapFields(const Scope& scope, const Node& node, std::string what,
                     std::initializer_list<std::string_view> allowed)
    : scope_(scope), node_(node), what_(std::move(what)) {
  if (!node.is_mapping()) {
    scope.problem(node, what_ + " must be a mapping, got " + shown(node));
    return;
  }
  std::vector<std::string> words;
  for (const Entry& entry : node.entries) {
    if (std::find(allowed.begin(), allowed.end(), entry.key) != allowed.end()) continue;
    if (words.empty()) words.assign(allowed.begin(), allowed.end());
    unknown_key(scope, entry, what_, words);
  }
}

const Node* MapFields::require(std::string_view key) const {
  const Node* found = get(key);
  if (found == nullptr && node_.is_mapping()) scope_.problem(node_, what_ + " must have " + named(key));
  return found;
}

const Entry* MapFields::entry(std::string_view key) const noexcept {
  for (const Entry& entry : node_.entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

bool read_string(const Scope& scope, const Node* node, std::string_view field, std::size_t most, std::string& out) {
  if (node == nullptr) return false;
  if (!node->is_scalar() || node->text.empty()) {
    scope.problem(*node, named(field) + " must be text, got " + shown(*node));
  } else if (node->text.size() > most) {
    scope.problem(*node, named(field) + " must be at most " + std::to_string(most) + " bytes, got " +
                             std::to_string(node->text.size()));
  } else if (base::find_not_text(node->text) != std::string::npos) {
    scope.problem(*node, named(field) + " must not have control characters");
  } else {
    out = node->text;
    return true;
  }
  return false;
}

bool read_bool(const Scope& scope, const Node* node, std::string_view field, bool& out) {
  if (node == nullptr) return false;
  if (!node->is_boolean()) {
    scope.problem(*node, named(field) + " must be true or false, got " + shown(*node));
    return false;
  }
  out = node->is_true();
  return true;
}

bool read_whole(const Scope& scope, const Node* node, std::string_view field, WholeRange range, std::int64_t& out) {
  if (node == nullptr) return false;
  const auto number = node->is_scalar() ? parse_decimal(node->text) : std::nullopt;
  const auto whole = number ? number->times(1) : std::nullopt;
  if (!whole) {
    scope.problem(*node, named(field) + " must be a whole number, got " + shown(*node));
  } else if (*whole < range.least || *whole > range.most) {
    scope.problem(*node, named(field) + " must be between " + std::to_string(range.least) + " and " +
                             std::to_string(range.most) + ", got " + shown(*node));
  } else {
    out = *whole;
    return true;
  }
  return false;
}

bool read_fraction(const Scope& scope, const Node* node, std::string_view field, Range range, double& out) {
  if (node == nullptr) return false;
  const auto number = node->is_scalar() ? parse_fraction(node->text) : std::nullopt;
  if (!number) {
    scope.problem(*node, named(field) + " must be a number such as 0.1 or 10%, got " + shown(*node));
    return false;
  }
  if (*number < range.least || *number > range.most || (range.above && *number == range.least)) {
    const std::string bounds = range.above ? "above " + shortest(range.least) + " and at most " + shortest(range.most)
                                           : "between " + shortest(range.least) + " and " + shortest(range.most);
    scope.problem(*node, named(field) + " must be " + bounds + ", got " + base::shortened(node->text, 64));
    return false;
  }
  out = *number;
  return true;
}

bool read_duration(const Scope& scope, const Node* node, std::string_view field, Span range, Nanos& out) {
  if (node == nullptr) return false;
  const auto duration = node->is_scalar() ? parse_duration(node->text) : std::nullopt;
  if (!duration) {
    scope.problem(*node, named(field) + " must be a duration such as 500ms, 60s, 5m, 1h or 7d, got " + shown(*node));
    return false;
  }
  if (*duration < range.least || *duration > range.most) {
    constexpr Nanos kTenYears = std::chrono::hours{24 * 365 * 10};
    const std::string most = range.most == kTenYears ? "10y" : base::format_duration(range.most);
    scope.problem(*node, named(field) + " must be between " + base::format_duration(range.least) + " and " + most +
                             ", got " + base::shortened(node->text, 64));
    return false;
  }
  out = *duration;
  return true;
}

std::optional<std::size_t> read_choice(const Scope& scope, const Node* node, std::string_view field,
                                       std::span<const std::string> words) {
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar()) {
    const auto found = std::find(words.begin(), words.end(), node->text);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  }
  scope.problem(*node, named(field) + " must be " + one_of(words) + ", got " + shown(*node) +
                           (node->is_scalar() ? base::did_you_mean(node->text, words) : ""));
  return std::nullopt;
}

std::optional<std::vector<const Node*>> read_list(const Scope& scope, const Node* node, std::string_view field) {
  if (node == nullptr) return std::nullopt;
  if (node->is_sequence()) return node->items;
  if (node->is_scalar()) return std::vector<const Node*>{node};
  scope.problem(*node, named(field) + " must be a list, got " + shown(*node));
  return std::nullopt;
}

}  // namespace headgate::policy
