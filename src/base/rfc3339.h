// Instants as people and logs write them: 2026-03-28T15:00:00Z.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::base {

// RFC 3339, with any fraction of a second and any offset; what is finer than a nanosecond is dropped, a leap second is
// the second after it. nullopt: it is not one, or not within [0, kMaxTime].
[[nodiscard]] std::optional<Nanos> parse_rfc3339(std::string_view text) noexcept;

// As above, or epoch milliseconds: how JSON and people who copy from it give an instant.
[[nodiscard]] std::optional<Nanos> parse_instant(std::string_view text) noexcept;

// In UTC, with milliseconds only where there are any. Finer parts are not shown.
[[nodiscard]] std::string format_rfc3339(Nanos instant);

}  // namespace headgate::base
