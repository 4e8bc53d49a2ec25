#include "state/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace headgate::state {
namespace {

// Looking an algorithm up by name costs more than hashing a token, so it is done once.
const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return kAlgorithm;
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};

}  // namespace

std::string random_hex(std::size_t bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::vector<unsigned char> random(bytes);
  if (RAND_bytes(random.data(), static_cast<int>(bytes)) != 1) std::abort();
  std::string text;
  text.reserve(2 * bytes);
  for (const unsigned char byte : random) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  OPENSSL_cleanse(random.data(), random.size());
  return text;
}

Sha256 sha256(std::string_view bytes) {
  thread_local std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  Sha256 hash{};
  // These fail only without memory or without SHA-256, and then no secret may match another.
  if (context == nullptr || EVP_DigestInit_ex2(context.get(), sha256_algorithm(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), hash.data(), nullptr) != 1) {
    std::abort();
  }
  return hash;
}

bool equal(const Sha256& a, const Sha256& b) noexcept { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::string new_token_secret() { return std::string(kTokenPrefix) + random_hex(kTokenBytes); }

bool looks_like_token(std::string_view secret) noexcept {
  if (secret.size() != kTokenPrefix.size() + 2 * kTokenBytes || !secret.starts_with(kTokenPrefix)) return false;
  secret.remove_prefix(kTokenPrefix.size());
  return std::all_of(secret.begin(), secret.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace headgate::state
