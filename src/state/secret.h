// Secrets: made from the operating system's randomness, kept only as hashes, compared in constant time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace headgate::state {

// So many random bytes as lower-case hexadecimal. Ends the program if the system has no randomness to give: there is no
// safe way on.
[[nodiscard]] std::string random_hex(std::size_t bytes);

using Sha256 = std::array<std::uint8_t, 32>;
[[nodiscard]] Sha256 sha256(std::string_view bytes);
// Takes as long whatever the two hold.
[[nodiscard]] bool equal(const Sha256& a, const Sha256& b) noexcept;

inline constexpr std::string_view kTokenPrefix = "hg_";
inline constexpr std::size_t kTokenBytes = 32;
[[nodiscard]] std::string new_token_secret();
// Whether it could be one at all: what could not is not hashed.
[[nodiscard]] bool looks_like_token(std::string_view secret) noexcept;

}  // namespace headgate::state
