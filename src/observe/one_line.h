// Text from outside, written so that it can forge neither a line of the log nor a value of JSON.
#pragma once

#include <string>
#include <string_view>

namespace headgate::observe {

// As a JSON string with its quotes. Control characters (those past U+007F too) and line separators are escaped; a byte
// that is not UTF-8 becomes U+FFFD.
void append_quoted(std::string_view text, std::string& out);

// As it is where that reads as one word, else quoted as above.
void append_word(std::string_view text, std::string& out);

}  // namespace headgate::observe
