// All tokens in memory, found by the hash of their secret.
//
// Immutable once built: whoever changes a token publishes another table.
#pragma once

#include <cstring>
#include <unordered_map>
#include <vector>

#include "state/database.h"
#include "state/secret.h"

namespace headgate::state {

struct HashedToken {
  Token token;
  Sha256 hash{};
};

class TokenTable {
 public:
  explicit TokenTable(std::vector<HashedToken> tokens) : tokens_(std::move(tokens)) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) places_.emplace(first_word(tokens_[i].hash), i);
  }

  // How long this takes tells at most a few bits of a hash, from which no secret can be found.
  [[nodiscard]] const Token* find(const Sha256& hash) const noexcept {
    const auto [begin, end] = places_.equal_range(first_word(hash));
    const Token* found = nullptr;
    for (auto place = begin; place != end; ++place) {
      if (equal(tokens_[place->second].hash, hash)) found = &tokens_[place->second].token;
    }
    return found;
  }
  [[nodiscard]] const std::vector<HashedToken>& all() const noexcept { return tokens_; }  // oldest first

 private:
  [[nodiscard]] static std::uint64_t first_word(const Sha256& hash) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, hash.data(), sizeof(word));
    return word;
  }
  std::vector<HashedToken> tokens_;
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
};

}  // namespace headgate::state
