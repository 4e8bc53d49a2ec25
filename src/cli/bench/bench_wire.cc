#include "cli/bench/bench_wire.h"

#include <fmt/format.h>
#include <strings.h>

#include <charconv>
#include <cstring>

#include "base/json_pen.h"
#include "engine/check_json.h"

namespace headgate::cli {
namespace {

using Outcome = BenchReply::Outcome;

constexpr int kDeepest = 8;
constexpr std::int64_t kLongest = 1 << 20;

BenchReply garbage() { return {Outcome::kGarbage, true, 0, {}}; }

// Skips one value of the Redis protocol, and keeps the first integer it meets.
class RespScan {
 public:
  explicit RespScan(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  enum class State : std::uint8_t { kDone, kMore, kGarbage };
  State skip(int depth) {
    if (at_ == end_) return State::kMore;
    const char type = *at_;
    const char* line = at_ + 1;
    const void* found = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
    if (found == nullptr) return end_ - at_ > kLongest ? State::kGarbage : State::kMore;
    const char* stop = static_cast<const char*>(found);
    if (stop == at_ || stop[-1] != '\r') return State::kGarbage;
    at_ = stop + 1;
    switch (type) {
      case ':': {
        if (have_first_) return State::kDone;
        have_first_ = true;
        return std::from_chars(line, stop - 1, first_).ec == std::errc{} ? State::kDone : State::kGarbage;
      }
      case '+':
      case '-':
      case '_':
      case '#':
      case ',':
      case '(': return State::kDone;
      default: return skip_long(type, line, stop - 1, depth);
    }
  }
  [[nodiscard]] const char* at() const noexcept { return at_; }
  [[nodiscard]] bool has_first() const noexcept { return have_first_; }
  [[nodiscard]] std::int64_t first() const noexcept { return first_; }

 private:
  State skip_long(char type, const char* line, const char* stop, int depth) {
    std::int64_t length = 0;
    if (std::from_chars(line, stop, length).ec != std::errc{} || length > kLongest) return State::kGarbage;
    if (type == '$' || type == '=') {
      if (length < 0) return State::kDone;
      if (end_ - at_ < length + 2) return State::kMore;
      at_ += length + 2;
      return State::kDone;
    }
    const bool several = type == '*' || type == '~' || type == '>' || type == '%';
    if (!several || depth >= kDeepest) return State::kGarbage;
    if (type == '%') length *= 2;
    for (std::int64_t i = 0; i < length; ++i) {
      if (const State state = skip(depth + 1); state != State::kDone) return state;
    }
    return State::kDone;
  }

  const char* at_;
  const char* end_;
  bool have_first_ = false;
  std::int64_t first_ = 0;
};

BenchReply read_resp(BenchKind kind, std::string_view text) {
  RespScan scan(text);
  const RespScan::State state = scan.skip(0);
  if (state == RespScan::State::kMore) return {};
  if (state == RespScan::State::kGarbage) return garbage();
  BenchReply reply;
  reply.size = static_cast<std::size_t>(scan.at() - text.data());
  if (text.front() == '-') {
    reply.outcome = Outcome::kError;
    reply.error = text.substr(1, reply.size - 3);
  } else if (!scan.has_first()) {
    reply.outcome = Outcome::kOther;
  } else {
    // CL.THROTTLE says whether it is limited, HG.CHECK whether it is allowed.
    reply.outcome = (scan.first() == 0) == (kind == BenchKind::kThrottle) ? Outcome::kAllowed : Outcome::kDenied;
  }
  return reply;
}

// The value of a header, whose line begins with its name and a colon.
bool header(std::string_view line, std::string_view name, std::string_view& value) {
  if (line.size() <= name.size() || line[name.size()] != ':') return false;
  if (strncasecmp(line.data(), name.data(), name.size()) != 0) return false;
  value = line.substr(name.size() + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return true;
}

Outcome judged(std::string_view body) {
  constexpr std::string_view kAllowed = "\"allowed\"";
  std::size_t at = body.find(kAllowed);
  if (at == std::string_view::npos) return Outcome::kOther;
  at = body.find_first_not_of(" :", at + kAllowed.size());
  return at != std::string_view::npos && body[at] == 't' ? Outcome::kAllowed : Outcome::kDenied;
}

BenchReply read_http(std::string_view text) {
  constexpr std::string_view kVersion = "HTTP/1.";
  if (text.substr(0, kVersion.size()) != kVersion.substr(0, text.size())) return garbage();
  const std::size_t head = text.find("\r\n\r\n");
  if (head == std::string_view::npos) return text.size() > kLongest ? garbage() : BenchReply{};
  int status = 0;
  constexpr std::size_t kStatusAt = 9;
  if (head < kStatusAt + 3 ||
      std::from_chars(text.data() + kStatusAt, text.data() + kStatusAt + 3, status).ec != std::errc{}) {
    return garbage();
  }
  BenchReply reply;
  std::int64_t length = -1;
  for (std::size_t at = text.find("\r\n") + 2; at < head + 2;) {
    const std::size_t stop = text.find("\r\n", at);
    const std::string_view line = text.substr(at, stop - at);
    std::string_view value;
    if (header(line, "content-length", value)) {
      if (std::from_chars(value.data(), value.data() + value.size(), length).ec != std::errc{}) return garbage();
    } else if (header(line, "connection", value)) {
      reply.closes = strncasecmp(value.data(), "close", 5) == 0 && value.size() >= 5;
    }
    at = stop + 2;
  }
  if (status == 204 || status == 304) length = 0;
  if (length < 0 || length > kLongest) return garbage();  // neither chunks nor bodies that end with the connection
  const std::size_t size = head + 4 + static_cast<std::size_t>(length);
  if (text.size() < size) return {};
  reply.size = size;
  const std::string_view body = text.substr(head + 4, static_cast<std::size_t>(length));
  if (status == 200) {
    reply.outcome = judged(body);
  } else {
    reply.outcome = Outcome::kError;
    reply.error = body.empty() ? text.substr(0, text.find("\r\n")) : body;
  }
  return reply;
}

BenchRequest posted(const HttpTarget& target, std::string_view before_key, std::string_view after_key,
                    std::string_view what) {
  std::string body = fmt::format("{}{}{}", before_key, BenchRequest::kKey, after_key);
  base::append_json_text(what, body);
  body += '}';
  std::string text = fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\n", target.path, target.host);
  if (!target.token.empty()) text += fmt::format("Authorization: Bearer {}\r\n", target.token);
  text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  return BenchRequest(std::move(text));
}

}  // namespace

std::string resp_command(std::initializer_list<std::string_view> words) {
  std::string out = fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) out += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return out;
}

BenchRequest http_request(const HttpTarget& target, std::string_view operation) {
  return posted(target, R"({"agent":"bench-)", R"(","operation":)", operation);
}

BenchRequest quota_request(const HttpTarget& target, std::string_view type) {
  return posted(target, R"({"user":"bench-)", R"(","type":)", type);
}

BenchRequest throttle_request(const ThrottleLimit& limit) {
  const std::string key = "bench-" + std::string(BenchRequest::kKey);
  return BenchRequest(resp_command({"CL.THROTTLE", key, limit.max_burst, limit.count, limit.period}));
}

BenchRequest check_request(std::string_view operation) {
  const std::string agent = "bench-" + std::string(BenchRequest::kKey);
  return BenchRequest(resp_command({"HG.CHECK", agent, operation}));
}

BenchReply read_reply(BenchKind kind, std::string_view text) {
  if (text.empty()) return {};
  return kind == BenchKind::kHttp ? read_http(text) : read_resp(kind, text);
}

}  // namespace headgate::cli
