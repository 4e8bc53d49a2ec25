// A Check is one question: may this subject do this operation now, at this cost?
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "headgate/clock.h"

namespace headgate {

// What an attribute of a check may be. Text and numbers that read the same are the same: 3, 3.0 and "3".
struct Value {
  enum class Kind : std::uint8_t { kText, kNumber, kBoolean };
  Kind kind = Kind::kText;
  bool boolean = false;
  double number = 0;
  std::string_view text;  // kText only

  constexpr Value() = default;
  constexpr Value(std::string_view value) noexcept : text(value) {}
  constexpr Value(const char* value) noexcept : text(value) {}
  constexpr Value(double value) noexcept : kind(Kind::kNumber), number(value) {}
  constexpr Value(int value) noexcept : Value(static_cast<double>(value)) {}
  constexpr Value(bool value) noexcept : kind(Kind::kBoolean), boolean(value) {}
};

struct Attribute {
  std::string_view name;
  Value value;
};

// So much of one unit: requests, tokens, usd, or any other name.
struct Cost {
  std::string_view unit;
  double amount = 0;
};

// All text is borrowed: it must live until the check is answered. An empty field is an absent one.
struct Check {
  std::string_view operation;  // required
  std::string_view agent;
  std::string_view session;
  std::string_view user;
  std::string_view tenant;
  std::string_view plan;
  std::string_view channel;
  std::string_view ip;
  std::string_view context;  // its type
  std::string_view resource;
  std::span<const Attribute> attributes;  // of the context
  std::span<const Cost> costs;            // empty: one request

  // The root of a tree of agents: its budgets are debited too. An empty parent_agent means the same agent.
  std::string_view parent_session;
  std::string_view parent_agent;

  bool peek = false;  // judge only
  bool hold = false;  // take out a lease on what is charged
  int priority = 0;   // higher waits less
  Nanos max_wait{0};  // how long the check may wait in line, where a policy queues
};

// Bounds on a check, so that none is expensive.
inline constexpr std::size_t kMaxNameBytes = 512;  // each field, attribute name and attribute value
inline constexpr std::size_t kMaxAttributes = 64;
inline constexpr std::size_t kMaxCosts = 8;
inline constexpr double kMaxCost = 1e12;

}  // namespace headgate
