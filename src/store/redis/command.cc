#include "store/redis/command.h"

#include <hiredis/hiredis.h>
#include <openssl/evp.h>

#include <array>
#include <cassert>
#include <charconv>
#include <semaphore>
#include <utility>

namespace headgate::store::redis {
namespace {

constexpr std::array<std::uint16_t, 256> make_crc16() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) {
    auto crc = static_cast<std::uint16_t>(i << 8);
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<std::uint16_t>((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrc16 = make_crc16();  // XMODEM, as the cluster specification says

void append_count(char mark, std::size_t count, std::string& wire) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), count).ptr;
  wire += mark;
  wire.append(digits.data(), end);
  wire += "\r\n";
}

void append_base64url(const base::Hash128& key, std::string& out) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  for (int digit = 0; digit < 22; ++digit) {
    const int from = 128 - 6 * (digit + 1);  // the last digit has two bits and four zeros
    std::uint64_t bits = 0;
    if (from >= 64) {
      bits = key.high >> (from - 64);
    } else if (from >= 0) {
      bits = key.low >> from | (from > 0 ? key.high << (64 - from) : 0);
    } else {
      bits = key.low << -from;
    }
    out += kDigits[bits & 63];
  }
}

}  // namespace

Script make_script(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha1(), nullptr);
  constexpr std::string_view kHex = "0123456789abcdef";
  Script script{text, {}};
  for (unsigned i = 0; i < length; ++i) {
    script.sha1 += kHex[digest[i] >> 4];
    script.sha1 += kHex[digest[i] & 15];
  }
  return script;
}

void append_array(std::size_t size, std::string& wire) { append_count('*', size, wire); }

void append_bulk(std::string_view text, std::string& wire) {
  append_count('$', text.size(), wire);
  wire += text;
  wire += "\r\n";
}

void append_words(std::span<const std::string_view> words, std::string& wire) {
  append_array(words.size(), wire);
  for (const std::string_view word : words) append_bulk(word, wire);
}

std::uint16_t slot_of(std::string_view key) noexcept {
  if (const std::size_t open = key.find('{'); open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  std::uint16_t crc = 0;
  for (const char c : key) {
    crc = static_cast<std::uint16_t>((crc << 8) ^ kCrc16[((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xFF]);
  }
  return crc % 16384;
}

std::string cell_key(std::string_view prefix, const base::Hash128& cell) {
  std::string key;
  key.reserve(prefix.size() + 26);
  key += prefix;
  key += "c:{";
  append_base64url(cell, key);
  key += '}';
  return key;
}

bool Reply::is_nil() const noexcept { return reply_->type == REDIS_REPLY_NIL; }
bool Reply::is_integer() const noexcept { return reply_->type == REDIS_REPLY_INTEGER; }
bool Reply::is_text() const noexcept {
  return reply_->type == REDIS_REPLY_STRING || reply_->type == REDIS_REPLY_STATUS;
}
bool Reply::is_array() const noexcept { return reply_->type == REDIS_REPLY_ARRAY; }
std::int64_t Reply::integer() const noexcept {
  assert(is_integer());
  return reply_->integer;
}
std::string_view Reply::text() const noexcept {
  assert(is_text());
  return {reply_->str, reply_->len};
}
std::size_t Reply::size() const noexcept { return is_array() ? reply_->elements : 0; }
Reply Reply::operator[](std::size_t i) const noexcept {
  assert(i < size());
  return Reply(reply_->element[i]);
}

void ask_and_wait(Caller& caller, Command command, const std::function<void(const Result<Reply>&)>& read) {
  std::binary_semaphore answered{0};
  caller.call(std::move(command), [&](const Result<Reply>& reply) {
    read(reply);
    answered.release();
  });
  answered.acquire();
}

}  // namespace headgate::store::redis
