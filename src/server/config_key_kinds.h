// The kinds of configuration keys: text, a secret, an address, a list, a whole number, a duration, a choice.
//
// Each makes a key from its path, its documentation and a function that gives the member of a Config it sets.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/suggest.h"
#include "base/text.h"
#include "policy/number.h"
#include "server/config_keys.h"

namespace headgate::server {

inline constexpr std::size_t kMostItems = 1'000;  // of a list

// As a JSON string.
[[nodiscard]] std::string quoted(const std::string& text);
[[nodiscard]] std::string must_be(std::string_view what, const Value& value);
// The one text of a value that is no list.
[[nodiscard]] const std::string* text_of(const Value& value);
// Whether it is short enough, and has no control characters.
[[nodiscard]] bool is_fine(const std::string& text);

template <class Member>
ConfigKey text_key(std::string path, std::string doc, Member member) {
  ConfigKey key;
  key.path = std::move(path);
  key.doc = std::move(doc);
  key.set = [member](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    if (text == nullptr || !is_fine(*text)) return must_be("text", value);
    member(config) = *text;
    return "";
  };
  key.get = [member](const Config& config) { return quoted(member(config)); };
  return key;
}

// Text that is not for eyes, whatever it is.
template <class Member>
ConfigKey secret_key(std::string path, std::string doc, Member member) {
  ConfigKey key = text_key(std::move(path), std::move(doc), member);
  key.is_secret = [](const Config&) { return true; };
  return key;
}

template <class Member>
ConfigKey address_key(std::string path, std::string doc, Member member) {
  ConfigKey key = text_key(std::move(path), std::move(doc), member);
  key.set = [member](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    if (text == nullptr) return must_be("an address or off", value);
    if (*text != "off") {
      if (auto address = net::parse_address(*text); !address) return address.error().message;
    }
    member(config) = *text;
    return "";
  };
  return key;
}

template <class Member>
ConfigKey list_key(std::string path, std::string doc, Member member) {
  ConfigKey key;
  key.path = std::move(path);
  key.doc = std::move(doc);
  key.is_list = true;
  key.set = [member](Config& config, const Value& value) -> std::string {
    if (value.items.size() > kMostItems) {
      return fmt::format("must be a list of at most {}, got {}", kMostItems, value.items.size());
    }
    for (const std::string& item : value.items) {
      if (item.empty() || !is_fine(item)) return "must be a list of texts, none of them empty";
    }
    member(config) = value.items;
    return "";
  };
  key.get = [member](const Config& config) {
    std::string out = "[";
    for (const std::string& item : member(config)) out += (out.size() > 1 ? ", " : "") + quoted(item);
    return out + "]";
  };
  return key;
}

struct Bounds {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
template <class Member>
ConfigKey whole_key(std::string path, std::string doc, Bounds bounds, Member member) {
  ConfigKey key;
  key.path = std::move(path);
  key.doc = std::move(doc);
  key.set = [member, bounds](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    const auto decimal = text != nullptr ? policy::parse_decimal(*text) : std::nullopt;
    const auto number = decimal ? decimal->times(1) : std::nullopt;
    if (!number || *number < bounds.least || *number > bounds.most) {
      return must_be(fmt::format("a whole number from {} to {}", bounds.least, bounds.most), value);
    }
    auto& into = member(config);
    into = static_cast<std::decay_t<decltype(into)>>(*number);
    return "";
  };
  key.get = [member](const Config& config) { return fmt::format("{}", member(config)); };
  return key;
}

struct Span {
  Nanos least{0};
  Nanos most{0};
  bool or_zero = false;
};
template <class Member>
ConfigKey duration_key(std::string path, std::string doc, Span span, Member member) {
  ConfigKey key;
  key.path = std::move(path);
  key.doc = std::move(doc);
  key.set = [member, span](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    const auto duration = text != nullptr ? policy::parse_duration(*text) : std::nullopt;
    const bool fits =
        duration && ((*duration >= span.least && *duration <= span.most) || (span.or_zero && *duration == Nanos{0}));
    if (!fits) {
      return must_be(fmt::format("{}a duration from {} to {}", span.or_zero ? "0 or " : "",
                                 base::format_duration(span.least), base::format_duration(span.most)),
                     value);
    }
    member(config) = *duration;
    return "";
  };
  key.get = [member](const Config& config) {
    return member(config) == Nanos{0} ? std::string("0s") : base::format_duration(member(config));
  };
  return key;
}

template <class Choice>
struct Named {
  std::string name;
  Choice choice;
};
template <class Choice, class Member>
ConfigKey choice_key(std::string path, std::string doc, std::vector<Named<Choice>> choices, Member member) {
  ConfigKey key;
  key.path = std::move(path);
  key.doc = std::move(doc);
  key.set = [member, choices](Config& config, const Value& value) -> std::string {
    std::vector<std::string> names;
    const std::string* text = text_of(value);
    for (const auto& [name, choice] : choices) {
      names.push_back(name);
      if (text == nullptr || *text != name) continue;
      member(config) = choice;
      return "";
    }
    return must_be(fmt::format("{}", fmt::join(names, " or ")), value) +
           (text != nullptr ? base::did_you_mean(*text, names) : "");
  };
  key.get = [member, choices](const Config& config) {
    const auto found =
        std::find_if(choices.begin(), choices.end(), [&](const auto& named) { return named.choice == member(config); });
    return found != choices.end() ? found->name : choices.front().name;
  };
  return key;
}

}  // namespace headgate::server
