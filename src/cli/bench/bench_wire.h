// What the load generator says and hears: requests built once, and answers read no further than needed. No sockets.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headgate::cli {

enum class BenchKind { kHttp, kThrottle, kCheck };

// A request whose key alone changes. The key has a fixed width, so the bytes around it never do.
class BenchRequest {
 public:
  static constexpr std::uint32_t kMostKeys = 100'000'000;

  // `text` holds the placeholder kKey once.
  static constexpr std::string_view kKey = "########";
  explicit BenchRequest(std::string text) : text_(std::move(text)), key_at_(text_.find(kKey)) {}

  // REQUIRES: key < kMostKeys.
  void append(std::uint32_t key, std::string& out) const {
    assert(key < kMostKeys);
    const std::size_t at = out.size() + key_at_;
    out += text_;
    for (std::size_t i = kKey.size(); i > 0; --i) {
      out[at + i - 1] = static_cast<char>('0' + key % 10);
      key /= 10;
    }
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::size_t key_at_;
};

struct HttpTarget {
  std::string host;   // as the Host header names it
  std::string path;   // "/v1/check" or "/api/quotas/check", below whatever the URL has
  std::string token;  // empty: none
};
[[nodiscard]] BenchRequest http_request(const HttpTarget& target, std::string_view operation);
// POST /api/quotas/check, of users by number and that type of command.
[[nodiscard]] BenchRequest quota_request(const HttpTarget& target, std::string_view type);
// max_burst, count and period as CL.THROTTLE takes them.
struct ThrottleLimit {
  std::string max_burst = "15";
  std::string count = "30";
  std::string period = "60";
};
[[nodiscard]] BenchRequest throttle_request(const ThrottleLimit& limit);
[[nodiscard]] BenchRequest check_request(std::string_view operation);
// One command of the Redis protocol.
[[nodiscard]] std::string resp_command(std::initializer_list<std::string_view> words);

struct BenchReply {
  enum class Outcome : std::uint8_t { kMore, kAllowed, kDenied, kOther, kError, kGarbage };
  Outcome outcome = Outcome::kMore;  // kMore: it has not all come yet; kOther: an answer that decides nothing
  bool closes = false;               // the server will close the connection after it
  std::size_t size = 0;              // of the answer
  std::string_view error;            // with kError: what it said
};
// The first answer in `text`.
[[nodiscard]] BenchReply read_reply(BenchKind kind, std::string_view text);

}  // namespace headgate::cli
