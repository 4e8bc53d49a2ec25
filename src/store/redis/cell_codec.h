// Cells as they lie in Redis, turned into the words of a cell in memory and back. Only a change of limits needs it: the
// scripts know one set of numbers, and carrying a cell over takes two and wide arithmetic.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/live_limit.h"
#include "store/memory/cell.h"

namespace headgate::store::redis {

// The words of a bucket, window or counter. REQUIRES: `raw` is of such a cell, or all zero for a new one.
void load_words(const core::CompiledLimit& limit, std::string_view raw, Word* words, bool& ahead) noexcept;

// The numbers by which a cell was written; nullopt: these are not the bytes of a cell of that strategy.
[[nodiscard]] std::optional<std::uint32_t> shape_in(Strategy strategy, std::string_view raw) noexcept;

struct Carried {
  std::string raw;  // empty: a cell that need not be kept
  std::int64_t keep_ms = 0;
};
// The cell carried over from one generation of its limit to another; nullopt: it is torn, or there is no memory.
// REQUIRES: shape_in() gave a shape, and `live` remembers both.
[[nodiscard]] std::optional<Carried> carry_cell(const LiveLimit& live, std::uint32_t from, std::uint32_t to,
                                                std::string_view raw, Nanos now);

}  // namespace headgate::store::redis
