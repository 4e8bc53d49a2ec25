// What text is: valid UTF-8 without control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headgate::base {

// The first byte that no text has: not UTF-8, or a control character other than tab, line feed and carriage return.
// npos if there is none.
[[nodiscard]] std::size_t find_not_text(std::string_view bytes) noexcept;

// At most `most` bytes of it, cut between characters and marked with "..." if something was cut.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

}  // namespace headgate::base
