#include "net/http_parser.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>

namespace headgate::net {
namespace {

namespace beast = boost::beast;
using boost::beast::http::field;
using boost::beast::http::verb;

// Stops Beast; the refusal that goes with it says why.
beast::error_code stop() { return beast::http::make_error_code(beast::http::error::bad_field); }

std::string_view text_of(beast::string_view text) { return {text.data(), text.size()}; }

Method method_of(verb verb) noexcept {
  switch (verb) {
    case verb::get: return Method::kGet;
    case verb::head: return Method::kHead;
    case verb::post: return Method::kPost;
    case verb::put: return Method::kPut;
    case verb::delete_: return Method::kDelete;
    case verb::patch: return Method::kPatch;
    case verb::options: return Method::kOptions;
    default: return Method::kOther;
  }
}

bool digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Whether the request line ends in a version that is well formed, so that only its number is wrong.
bool names_a_version(std::string_view bytes) noexcept {
  std::string_view line = bytes.substr(0, bytes.find('\n'));
  if (line.empty() || line.back() != '\r') return false;
  line.remove_suffix(1);
  if (std::count(line.begin(), line.end(), ' ') != 2) return false;
  const std::string_view last = line.substr(line.rfind(' ') + 1);
  return last.size() == 8 && last.substr(0, 5) == "HTTP/" && digit(last[5]) && last[6] == '.' && digit(last[7]);
}

std::string_view moved(std::string_view text, std::ptrdiff_t by) noexcept { return {text.data() + by, text.size()}; }

}  // namespace

void HttpParser::begin() noexcept {
  stage_ = Stage::kHead;
  new_head_ = false;
  tried_ = 0;
  consumed_ = 0;
}

HttpParser::Step HttpParser::refuse(int status, std::string_view code, std::string_view message) noexcept {
  refusal_ = {status, code, message};
  return Step::kRefused;
}

HttpParser::Step HttpParser::refuse(std::string_view bytes, beast::error_code error) noexcept {
  using E = beast::http::error;
  if (refusal_.status != 0) return Step::kRefused;
  const auto bad = [this](std::string_view message) { return refuse(400, "bad_request", message); };
  if (error == E::bad_version) {
    if (names_a_version(bytes)) return refuse(505, "version_not_supported", "HTTP/1.1 and HTTP/1.0 are understood");
    return bad("the request line must end in HTTP/1.1");
  }
  if (error == E::bad_method) return bad("the request must begin with a method and one blank");
  if (error == E::bad_target) return bad("the request target must be without control characters");
  if (error == E::bad_field) return bad("a header's name must be a token, followed by a colon");
  if (error == E::bad_content_length) return bad("Content-Length must be one number, without Transfer-Encoding");
  if (error == E::multiple_content_length) return bad("Content-Length must be given once");
  if (error == E::bad_transfer_encoding) return bad("Transfer-Encoding must be given once, without Content-Length");
  if (error == E::bad_chunk || error == E::bad_chunk_extension) return bad("the chunked body is malformed");
  return bad("the request is malformed");
}

HttpParser::Step HttpParser::parse(std::string_view bytes, const HttpLimits& limits) {
  if (stage_ == Stage::kHead) return parse_head(bytes, limits);
  if (bytes.data() != base_) move_views(bytes.data());
  return stage_ == Stage::kSized ? parse_sized(bytes) : parse_chunks(bytes);
}

// Beast is shown whole lines only, from the first one each time, so that it makes no difference in which pieces a head
// arrives. That is at most once per line, and there are at most max_headers of them.
HttpParser::Step HttpParser::parse_head(std::string_view bytes, const HttpLimits& limits) {
  const std::size_t seen = std::min(bytes.size(), limits.max_head);
  const void* last_end = memrchr(bytes.data(), '\n', seen);
  const std::size_t lines =
      last_end == nullptr ? 0 : static_cast<std::size_t>(static_cast<const char*>(last_end) - bytes.data()) + 1;
  if (lines > tried_) {
    tried_ = lines;
    base_ = bytes.data();
    limits_ = limits;
    headers_.clear();
    refusal_.status = 0;
    extras_ = 0;
    version_ = hosts_ = lengths_ = 0;
    chunked_ = expects_ = false;
    grammar_.emplace(*this);
    grammar_->header_limit(static_cast<std::uint32_t>(limits.max_head + 1));
    beast::error_code error;
    consumed_ = grammar_->put({bytes.data(), lines}, error);
    if (!error) {
      head_ = consumed_;
      if (const Step step = check_head(); step == Step::kRefused) return step;
      new_head_ = true;
      return stage_ == Stage::kSized ? parse_sized(bytes) : parse_chunks(bytes);
    }
    if (error != beast::http::error::need_more) return refuse(bytes, error);
  }
  if (bytes.size() <= limits.max_head) return Step::kMore;
  if (lines == 0) return refuse(414, "uri_too_long", "the request line is too long");
  return refuse(431, "headers_too_large", "the request's headers are too large");
}

HttpParser::Step HttpParser::check_head() {
  if (hosts_ > 1 || (hosts_ == 0 && is_1_1())) return refuse(400, "bad_request", "exactly one Host header is needed");
  if (chunked_ && !is_1_1()) return refuse(400, "bad_request", "HTTP/1.0 knows no Transfer-Encoding");
  request_.headers = headers_;
  request_.body = {};
  chunks_.clear();
  if (chunked_) {
    stage_ = Stage::kChunked;
    return Step::kMore;
  }
  stage_ = Stage::kSized;
  const std::uint64_t length = grammar_->content_length().value_or(0);
  if (length > limits_.max_body) return refuse(413, "payload_too_large", "the request's body is too large");
  length_ = static_cast<std::size_t>(length);
  return Step::kMore;
}

HttpParser::Step HttpParser::parse_sized(std::string_view bytes) {
  if (bytes.size() - head_ < length_) return Step::kMore;
  request_.body = bytes.substr(head_, length_);
  consumed_ = head_ + length_;
  return Step::kWhole;
}

HttpParser::Step HttpParser::parse_chunks(std::string_view bytes) {
  // The end of a body is five bytes at least, so that Beast need never see fewer: it is not prepared for that.
  constexpr std::size_t kShortestEnd = 5;
  while (bytes.size() - consumed_ >= kShortestEnd) {
    // Never more than a head's worth, so that a chunk's line or the trailers are too long however they arrive.
    const std::string_view shown = bytes.substr(consumed_, std::max(limits_.max_head, kShortestEnd));
    beast::error_code error;
    consumed_ += grammar_->put({shown.data(), shown.size()}, error);
    if (error == beast::http::error::need_more) {
      if (bytes.size() - consumed_ <= limits_.max_head) return Step::kMore;
      return refuse(431, "headers_too_large", "a chunk's extensions or the trailers are too large");
    }
    if (error) return refuse(bytes, error);
    if (grammar_->is_done()) {
      request_.body = chunks_.empty() ? bytes.substr(consumed_, 0) : chunks_.view();
      return Step::kWhole;
    }
  }
  return Step::kMore;
}

bool HttpParser::wants_continue() noexcept {
  if (stage_ == Stage::kHead || !expects_) return false;
  expects_ = false;
  return is_1_1();
}

HttpParser::Span HttpParser::droppable() noexcept {
  if (stage_ != Stage::kChunked) return {};
  const Span span{head_, consumed_ - head_};
  consumed_ = head_;
  return span;
}

void HttpParser::move_views(const char* base) noexcept {
  const std::ptrdiff_t by = base - base_;
  base_ = base;
  for (Header& header : headers_) header = {moved(header.name, by), moved(header.value, by)};
  set_target(moved(request_.target, by));
}

void HttpParser::set_target(std::string_view target) noexcept {
  request_.target = target;
  std::string_view path = target;
  if (path.front() != '/') {
    // A proxy's form: http://host/path.
    if (const std::size_t scheme = path.find("://"); scheme != std::string_view::npos) {
      const std::size_t end = path.find_first_of("/?", scheme + 3);
      path = end == std::string_view::npos ? std::string_view("/") : path.substr(end);
    }
  }
  const std::size_t mark = path.find('?');
  request_.query = mark == std::string_view::npos ? std::string_view{} : path.substr(mark + 1);
  request_.path = path.substr(0, mark);
  if (request_.path.empty()) request_.path = "/";
}

void HttpParser::Grammar::on_request_impl(verb verb, Text /*name*/, Text target, int version, ErrorCode& /*error*/) {
  owner_.version_ = version;
  owner_.request_.method = method_of(verb);
  owner_.set_target(text_of(target));
}

void HttpParser::Grammar::on_field_impl(field field, Text name, Text value, ErrorCode& error) {
  HttpParser& owner = owner_;
  const auto refuse = [&](int status, std::string_view code, std::string_view message) {
    owner.refusal_ = {status, code, message};
    error = stop();
  };
  if (owner.stage_ == Stage::kChunked) {
    // A trailer: it is not used.
    owner.extras_ += name.size() + value.size() + 4;
    if (owner.extras_ > owner.limits_.max_head) {
      refuse(431, "headers_too_large", "a chunk's extensions or the trailers are too large");
    }
    return;
  }
  // A folded value is put together elsewhere, or begins on a later line than its name.
  const char* name_end = name.data() + name.size();
  const std::uintptr_t gap =
      reinterpret_cast<std::uintptr_t>(value.data()) - reinterpret_cast<std::uintptr_t>(name_end);
  if (gap > owner.limits_.max_head || (gap > 2 && std::memchr(name_end, '\n', gap) != nullptr)) {
    return refuse(400, "bad_request", "a header must be on one line");
  }
  if (owner.headers_.size() >= owner.limits_.max_headers) {
    return refuse(431, "headers_too_large", "the request has too many headers");
  }
  owner.headers_.push_back({text_of(name), text_of(value)});
  switch (field) {
    case field::host: ++owner.hosts_; break;
    case field::content_length:
      if (++owner.lengths_ > 1) return refuse(400, "bad_request", "Content-Length must be given once");
      for (const char c : value) {
        if (!digit(c)) return refuse(400, "bad_request", "Content-Length must be one number");
      }
      break;
    case field::transfer_encoding:
      if (!beast::iequals(value, "chunked")) {
        return refuse(501, "not_implemented", "no Transfer-Encoding but chunked is understood");
      }
      owner.chunked_ = true;
      break;
    case field::expect:
      if (!beast::iequals(value, "100-continue")) {
        return refuse(417, "expectation_failed", "no expectation but 100-continue can be met");
      }
      owner.expects_ = true;
      break;
    default: break;
  }
}

void HttpParser::Grammar::on_chunk_header_impl(std::uint64_t size, Text extensions, ErrorCode& error) {
  HttpParser& owner = owner_;
  owner.extras_ += extensions.size();
  if (owner.extras_ > owner.limits_.max_head) {
    owner.refusal_ = {431, "headers_too_large", "a chunk's extensions or the trailers are too large"};
    error = stop();
  } else if (size > owner.limits_.max_body - owner.chunks_.size()) {
    owner.refusal_ = {413, "payload_too_large", "the request's body is too large"};
    error = stop();
  }
}

std::size_t HttpParser::Grammar::on_chunk_body_impl(std::uint64_t /*remain*/, Text body, ErrorCode& /*error*/) {
  owner_.chunks_.append(text_of(body));
  return body.size();
}

}  // namespace headgate::net
