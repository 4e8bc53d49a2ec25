#include "net/http_answer_reader.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cassert>
#include <optional>

namespace headgate::net {
namespace http = boost::beast::http;

struct HttpAnswerReader::Impl {
  const std::size_t most_body;
  std::optional<http::response_parser<http::string_body>> parser;
  std::string unread;
  std::size_t taken = 0;  // bytes parsed
  int interim = 0;        // 1xx answers skipped
  State state = State::kMore;
  bool begun = false;

  explicit Impl(std::size_t most) : most_body(most) { begin(); }
  void begin() {
    parser.emplace();
    parser->header_limit(kMostHead);
    parser->body_limit(most_body);
    parser->eager(true);
  }

  [[nodiscard]] State step() {
    constexpr int kLeastStatus = 100;
    boost::beast::error_code error;
    const std::size_t used = parser->put(boost::asio::buffer(unread), error);
    unread.erase(0, used);
    taken += used;
    const bool too_long = error == http::error::body_limit;
    if (parser->is_header_done() || too_long) {
      // A coding that is not understood must not pass for the body.
      const bool coded = parser->get().find(http::field::transfer_encoding) != parser->get().end();
      if (parser->get().result_int() < kLeastStatus || (coded && !parser->chunked())) return State::kBroken;
    }
    if (too_long) return State::kTooLong;
    if (error && error != http::error::need_more) return State::kBroken;
    if (!parser->is_done()) return unread.size() > kMostHead ? State::kBroken : State::kMore;
    if (parser->get().result_int() / 100 != 1) return State::kWhole;
    begin();
    ++interim;
    return taken > kMostHead ? State::kBroken : State::kMore;
  }
};

HttpAnswerReader::HttpAnswerReader(std::size_t most_body) : impl_(std::make_unique<Impl>(most_body)) {}
HttpAnswerReader::HttpAnswerReader(HttpAnswerReader&&) noexcept = default;
HttpAnswerReader& HttpAnswerReader::operator=(HttpAnswerReader&&) noexcept = default;
HttpAnswerReader::~HttpAnswerReader() = default;

HttpAnswerReader::State HttpAnswerReader::feed(std::string_view bytes) {
  assert(impl_->state == State::kMore);
  impl_->unread.append(bytes);
  impl_->begun = impl_->begun || !bytes.empty();
  int interim = -1;
  while (impl_->state == State::kMore && !impl_->unread.empty() && interim != impl_->interim) {
    interim = impl_->interim;
    impl_->state = impl_->step();
  }
  return impl_->state;
}

HttpAnswerReader::State HttpAnswerReader::end() {
  assert(impl_->state == State::kMore);
  boost::beast::error_code error = http::error::partial_message;
  if (impl_->parser->got_some()) impl_->parser->put_eof(error);
  return impl_->state = error ? State::kBroken : State::kWhole;
}

bool HttpAnswerReader::begun() const noexcept { return impl_->begun; }
int HttpAnswerReader::status() const noexcept { return static_cast<int>(impl_->parser->get().result_int()); }
std::string& HttpAnswerReader::body() noexcept { return impl_->parser->get().body(); }
std::string HttpAnswerReader::header(std::string_view name) const {
  return std::string(impl_->parser->get()[boost::beast::string_view(name.data(), name.size())]);
}
bool HttpAnswerReader::reusable() const noexcept {
  return impl_->state == State::kWhole && impl_->parser->keep_alive() && impl_->unread.empty();
}

}  // namespace headgate::net
