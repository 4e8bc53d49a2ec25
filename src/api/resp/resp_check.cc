#include "api/resp/resp_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "base/suggest.h"
#include "base/utf8.h"

namespace headgate::api {

bool is_word(std::string_view text, std::string_view upper) noexcept {
  assert(std::none_of(upper.begin(), upper.end(), [](char c) { return c >= 'a' && c <= 'z'; }));
  if (text.size() != upper.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c) != upper[i]) return false;
  }
  return true;
}

bool to_integer(std::string_view text, std::int64_t& value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

namespace {

struct TextOption {
  std::string_view name;
  std::string_view Check::*field;
};
constexpr TextOption kTextOptions[] = {{"SESSION", &Check::session},   {"USER", &Check::user},
                                       {"TENANT", &Check::tenant},     {"PLAN", &Check::plan},
                                       {"CHANNEL", &Check::channel},   {"CONTEXT", &Check::context},
                                       {"RESOURCE", &Check::resource}, {"PARENT", &Check::parent_session}};

std::vector<std::string> option_names() {
  std::vector<std::string> names{"COST", "ATTR", "PEEK", "HOLD", "PRIORITY", "MAXWAIT"};
  for (const TextOption& option : kTextOptions) names.emplace_back(option.name);
  return names;
}

}  // namespace

void RespCheckReader::clear() noexcept {
  check_ = {};
  attribute_count_ = 0;
  cost_count_ = 0;
}

bool RespCheckReader::fail(std::string problem) {
  problem_ = std::move(problem);
  return false;
}

bool RespCheckReader::add_cost(std::string_view text) {
  Cost cost{.unit = "requests"};
  std::string_view amount = text;
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    cost.unit = text.substr(0, equals);
    amount = text.substr(equals + 1);
  }
  const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), cost.amount);
  if (error != std::errc{} || end != amount.data() + amount.size() || !std::isfinite(cost.amount) ||
      cost.unit.empty()) {
    return fail(fmt::format("COST must be a number or unit=number, got '{}'", base::shortened(text, 60)));
  }
  if (cost_count_ == costs_.size()) return fail(fmt::format("at most {} costs may be given", kMaxCosts));
  costs_[cost_count_++] = cost;
  return true;
}

bool RespCheckReader::read(std::span<const std::string_view> args) {
  clear();
  if (args.size() < 3) return fail("wrong number of arguments for 'hg.check' command");
  check_.agent = args[1];
  check_.operation = args[2];
  for (std::size_t i = 3; i < args.size(); ++i) {
    const std::string_view name = args[i];
    if (is_word(name, "PEEK")) {
      check_.peek = true;
      continue;
    }
    if (is_word(name, "HOLD")) {
      check_.hold = true;
      continue;
    }
    const bool attribute = is_word(name, "ATTR");
    const std::size_t values = attribute ? 2 : 1;
    const TextOption* text = nullptr;
    for (const TextOption& option : kTextOptions) {
      if (is_word(name, option.name)) text = &option;
    }
    const bool known =
        attribute || text != nullptr || is_word(name, "COST") || is_word(name, "PRIORITY") || is_word(name, "MAXWAIT");
    if (!known) {
      return fail(fmt::format("there is no option '{}'{}", base::shortened(name, 60),
                              base::did_you_mean(std::string(name), option_names())));
    }
    if (args.size() - i <= values) {
      return fail(fmt::format("option {} needs {}", name, attribute ? "a name and a value" : "a value"));
    }
    const std::string_view value = args[++i];
    if (text != nullptr) {
      check_.*text->field = value;
    } else if (attribute) {
      if (attribute_count_ == attributes_.size()) {
        return fail(fmt::format("at most {} attributes may be given", kMaxAttributes));
      }
      attributes_[attribute_count_++] = {value, Value(args[++i])};
    } else if (is_word(name, "COST")) {
      if (!add_cost(value)) return false;
    } else {
      std::int64_t number = 0;
      const bool wait = is_word(name, "MAXWAIT");
      constexpr std::int64_t kDay = 86'400'000;
      const std::int64_t least = wait ? 0 : -1'000'000;
      const std::int64_t most = wait ? kDay : 1'000'000;
      if (!to_integer(value, number) || number < least || number > most) {
        return fail(fmt::format("{} must be a whole number from {} to {}, got '{}'", wait ? "MAXWAIT" : "PRIORITY",
                                least, most, base::shortened(value, 60)));
      }
      if (wait) {
        check_.max_wait = std::chrono::milliseconds{number};
      } else {
        check_.priority = static_cast<int>(number);
      }
    }
  }
  check_.attributes = {attributes_.data(), attribute_count_};
  check_.costs = costs();
  if (check_.channel.empty()) check_.channel = "resp";
  return true;
}

}  // namespace headgate::api
