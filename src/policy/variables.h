// `${NAME}` in the values of a document: variables of this process's environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headgate::policy {

enum class Expand : std::uint8_t {
  kNo,           // values are as they are written
  kEnvironment,  // `${NAME}` is a variable, `$${` stands for `${`
  kRefuse,       // `${NAME}` is a flaw: the sender of a document may not read the environment with it
};

// Whether there is anything to expand.
[[nodiscard]] inline bool has_variables(std::string_view text) noexcept {
  return text.find("${") != std::string_view::npos;
}

// Puts the variables' values into the text; what is wrong with it, if anything. What a variable holds is not expanded
// again.
[[nodiscard]] std::optional<std::string> expand(Expand how, std::string& text);

}  // namespace headgate::policy
