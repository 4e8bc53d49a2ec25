// What JSON writes and YAML's parser does not read.
#pragma once

#include <string>
#include <string_view>

namespace headgate::policy {

// JSON writes a character past U+FFFF as two escapes (`\ud83d\ude00`), YAML as one (`\U0001f600`). In a document that
// begins like JSON the former become the latter; all other text stays as it is.
[[nodiscard]] std::string with_joined_surrogates(std::string_view text);

}  // namespace headgate::policy
