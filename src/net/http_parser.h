// Finds one HTTP/1.1 request at the beginning of some bytes, and refuses what could be read in two ways.
//
// The grammar is Beast's; what is added: exactly one Host, one Content-Length, no Transfer-Encoding but `chunked`, no
// folded headers, and bounds. Nothing is copied but chunked bodies.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "net/byte_buffer.h"
#include "net/http_error.h"

namespace headgate::net {

class HttpParser {
 public:
  enum class Step : std::uint8_t { kMore, kWhole, kRefused };

  // Before each request.
  void begin() noexcept;
  // Looks at `bytes`, which begin with the request's first byte and are, each time, those of last time and perhaps
  // more, at any address; only what droppable() named may be missing.
  [[nodiscard]] Step parse(std::string_view bytes, const HttpLimits& limits);

  // After kWhole: the request (without peer and time), and how many bytes it was.
  [[nodiscard]] const HttpRequest& request() const noexcept { return request_; }
  [[nodiscard]] std::size_t size() const noexcept { return consumed_; }
  [[nodiscard]] bool keep_alive() const noexcept { return grammar_->keep_alive(); }
  [[nodiscard]] bool is_1_1() const noexcept { return version_ >= 11; }
  // After kRefused: why the request is not answered by a handler. Texts are literals.
  [[nodiscard]] const HttpError& refusal() const noexcept { return refusal_; }
  // After kRefused: whether the head was complete, so that request() has its headers.
  [[nodiscard]] bool has_head() const noexcept { return stage_ != Stage::kHead; }
  // After kMore: whether the sender waits for "100 Continue" before it sends the body. Says so once.
  [[nodiscard]] bool wants_continue() noexcept;
  // After kMore: whether all but the body is there, so that request() can be looked at. Says so once.
  [[nodiscard]] bool has_new_head() noexcept { return std::exchange(new_head_, false); }
  // After kMore: decoded bytes that need not be kept, from `at` on. They are taken to be dropped.
  struct Span {
    std::size_t at = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Span droppable() noexcept;
  // How much memory it holds for the next request.
  [[nodiscard]] std::size_t weight() const noexcept { return chunks_.capacity(); }

 private:
  class Grammar;
  friend class Grammar;
  enum class Stage : std::uint8_t { kHead, kSized, kChunked };

  [[nodiscard]] Step parse_head(std::string_view bytes, const HttpLimits& limits);
  [[nodiscard]] Step parse_sized(std::string_view bytes);
  [[nodiscard]] Step parse_chunks(std::string_view bytes);
  [[nodiscard]] Step check_head();
  [[nodiscard]] Step refuse(int status, std::string_view code, std::string_view message) noexcept;
  [[nodiscard]] Step refuse(std::string_view bytes, boost::beast::error_code error) noexcept;
  void move_views(const char* base) noexcept;
  void set_target(std::string_view target) noexcept;

  class Grammar final : public boost::beast::http::basic_parser<true> {
   public:
    explicit Grammar(HttpParser& owner) noexcept : owner_(owner) { body_limit(boost::none); }

   private:
    using Text = boost::beast::string_view;
    using ErrorCode = boost::beast::error_code;
    using Length = boost::optional<std::uint64_t>;
    void on_request_impl(boost::beast::http::verb verb, Text name, Text target, int version, ErrorCode& error) override;
    void on_response_impl(int, Text, int, ErrorCode&) override {}
    void on_field_impl(boost::beast::http::field field, Text name, Text value, ErrorCode& error) override;
    void on_header_impl(ErrorCode&) override {}
    void on_body_init_impl(const Length&, ErrorCode&) override {}
    std::size_t on_body_impl(Text body, ErrorCode&) override { return body.size(); }
    void on_chunk_header_impl(std::uint64_t size, Text extensions, ErrorCode& error) override;
    std::size_t on_chunk_body_impl(std::uint64_t remain, Text body, ErrorCode& error) override;
    void on_finish_impl(ErrorCode&) override {}

    HttpParser& owner_;
  };

  std::optional<Grammar> grammar_;
  HttpRequest request_;
  std::vector<Header> headers_;
  ByteBuffer chunks_;
  HttpError refusal_;
  HttpLimits limits_;
  const char* base_ = nullptr;  // where the request's first byte was last time
  std::size_t tried_ = 0;       // so much of the head was looked at, and was not all of it
  std::size_t head_ = 0;        // its size
  std::size_t length_ = 0;      // of the body, by Content-Length
  std::size_t consumed_ = 0;
  std::size_t extras_ = 0;  // bytes of chunk extensions and trailers
  int version_ = 0;
  int hosts_ = 0;
  int lengths_ = 0;
  Stage stage_ = Stage::kHead;
  bool chunked_ = false;
  bool expects_ = false;
  bool new_head_ = false;
};

}  // namespace headgate::net
