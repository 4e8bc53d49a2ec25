// What text is: valid UTF-8 without control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headgate::base {

// Whether it is UTF-8 at all, control characters included.
[[nodiscard]] bool is_utf8(std::string_view bytes) noexcept;

// The first byte that no text has: not UTF-8, or a control character other than tab, line feed and carriage return.
// npos if there is none.
[[nodiscard]] std::size_t find_not_text(std::string_view bytes) noexcept;

// Whether it is text without any control character at all: none below U+0020, none from U+007F to U+009F.
[[nodiscard]] bool is_plain_text(std::string_view bytes) noexcept;

// At most `most` bytes of it, cut between characters and marked with "..." if something was cut.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

// Puts U+FFFD in place of NUL and of every byte that belongs to no character: then any database takes it as text.
void repair(std::string& bytes);

}  // namespace headgate::base
