// Reads one HTTP/1.1 answer out of bytes as they arrive.
//
// The grammar is Beast's. Added are bounds, and that 1xx answers are skipped: the head of the answer, all heads before
// it and each line of a chunked body are at most kMostHead bytes, the body is at most what the caller says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace headgate::net {

class HttpAnswerReader {
 public:
  static constexpr std::size_t kMostHead = 64 << 10;
  explicit HttpAnswerReader(std::size_t most_body);
  HttpAnswerReader(HttpAnswerReader&&) noexcept;
  HttpAnswerReader& operator=(HttpAnswerReader&&) noexcept;
  ~HttpAnswerReader();

  // kTooLong: the body exceeds its bound; the status is known.
  enum class State : std::uint8_t { kMore, kWhole, kBroken, kTooLong };
  // REQUIRES: the last call, if any, returned kMore.
  [[nodiscard]] State feed(std::string_view bytes);
  // The peer has closed the connection, which ends answers without a length.
  [[nodiscard]] State end();

  // Whether any byte has arrived.
  [[nodiscard]] bool begun() const noexcept;
  // After kWhole.
  [[nodiscard]] int status() const noexcept;
  [[nodiscard]] std::string& body() noexcept;
  [[nodiscard]] std::string header(std::string_view name) const;  // the first of that name; empty: there is none
  // Whether the connection can carry another call.
  [[nodiscard]] bool reusable() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headgate::net
