#include "service/sign_in.h"

namespace headgate::service {

std::string ExpiringSecrets::make(Nanos now) {
  std::string secret = state::random_hex(state::kTokenBytes);
  const state::Sha256 hash = state::sha256(secret);
  const std::lock_guard guard(mutex_);
  while (!order_.empty() && (order_.front().until <= now || order_.size() >= most_)) {
    until_.erase(order_.front().hash);
    order_.pop_front();
  }
  until_[hash] = now + lifetime_;
  order_.push_back({hash, now + lifetime_});
  return secret;
}

bool ExpiringSecrets::holds(std::string_view secret, Nanos now) const {
  if (secret.size() != 2 * state::kTokenBytes) return false;
  const state::Sha256 hash = state::sha256(secret);
  const std::lock_guard guard(mutex_);
  const auto found = until_.find(hash);
  return found != until_.end() && now < found->second;
}

bool ExpiringSecrets::take(std::string_view secret, Nanos now) {
  if (secret.size() != 2 * state::kTokenBytes) return false;
  const state::Sha256 hash = state::sha256(secret);
  const std::lock_guard guard(mutex_);
  const auto found = until_.find(hash);
  if (found == until_.end()) return false;
  const bool good = now < found->second;
  until_.erase(found);
  return good;
}

}  // namespace headgate::service
