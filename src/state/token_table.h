// All tokens in memory, found by the hash of their secret.
//
// Immutable once built: a change of tokens publishes another table.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/by_text.h"
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
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      Token& token = tokens_[i].token;
      token.number = first_word(tokens_[i].hash);
      places_.emplace(token.number, i);
      bind(Bound::kAgent, token.agent, token.expires);
      bind(Bound::kUser, token.user, token.expires);
      bind(Bound::kTenant, token.tenant, token.expires);
    }
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
  [[nodiscard]] bool has(std::uint64_t number) const { return places_.contains(number); }
  [[nodiscard]] bool binds_any(Bound kind) const noexcept { return !names(kind).empty(); }
  [[nodiscard]] bool is_bound(Bound kind, std::string_view name, Nanos now, Expiry& expiry) const {
    const auto found = names(kind).find(name);
    return found != names(kind).end() && !expiry.is_over(found->second, now);
  }

 private:
  [[nodiscard]] const base::ByText<Nanos>& names(Bound kind) const noexcept {
    return names_[static_cast<std::size_t>(kind)];
  }
  void bind(Bound kind, const std::string& name, Nanos expires) {
    if (name.empty()) return;
    Nanos& until = names_[static_cast<std::size_t>(kind)][name];
    until = std::max(until, expires == Nanos{0} ? Nanos::max() : expires);
  }
  [[nodiscard]] static std::uint64_t first_word(const Sha256& hash) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, hash.data(), sizeof(word));
    return word;
  }
  std::vector<HashedToken> tokens_;
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
  std::array<base::ByText<Nanos>, kBoundKinds> names_;  // until when each is bound
};

}  // namespace headgate::state
