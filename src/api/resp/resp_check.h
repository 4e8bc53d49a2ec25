// HG.CHECK's arguments.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "headgate/check.h"

namespace headgate::api {

// Reads one HG.CHECK after the other, without allocating. Text is borrowed from the arguments.
class RespCheckReader {
 public:
  // HG.CHECK agent operation [SESSION s] ... False: `problem` says what is wrong.
  [[nodiscard]] bool read(std::span<const std::string_view> args);
  [[nodiscard]] const Check& check() const noexcept { return check_; }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  // Costs as HG.CHECK and HG.SETTLE take them: "3", or "tokens=1200".
  [[nodiscard]] bool add_cost(std::string_view text);
  [[nodiscard]] std::span<const Cost> costs() const noexcept { return {costs_.data(), cost_count_}; }
  void clear() noexcept;

 private:
  [[nodiscard]] bool fail(std::string problem);

  Check check_;
  std::array<Attribute, kMaxAttributes> attributes_;
  std::size_t attribute_count_ = 0;
  std::array<Cost, kMaxCosts> costs_;
  std::size_t cost_count_ = 0;
  std::string problem_;
};

// Whether they are the same but for the case of ASCII letters. REQUIRES: `upper` has no lower-case letters.
[[nodiscard]] bool is_word(std::string_view text, std::string_view upper) noexcept;
// A whole number, and nothing else. False: it is none, or does not fit.
[[nodiscard]] bool to_integer(std::string_view text, std::int64_t& value) noexcept;

}  // namespace headgate::api
