#include "net/http_writer.h"

#include <ctime>

#include <array>
#include <charconv>
#include <cstring>

namespace headgate::net {
namespace {

std::string_view status_line(int status) noexcept {
  switch (status) {
    case 200: return "HTTP/1.1 200 OK\r\n";
    case 201: return "HTTP/1.1 201 Created\r\n";
    case 202: return "HTTP/1.1 202 Accepted\r\n";
    case 204: return "HTTP/1.1 204 No Content\r\n";
    case 301: return "HTTP/1.1 301 Moved Permanently\r\n";
    case 302: return "HTTP/1.1 302 Found\r\n";
    case 303: return "HTTP/1.1 303 See Other\r\n";
    case 304: return "HTTP/1.1 304 Not Modified\r\n";
    case 307: return "HTTP/1.1 307 Temporary Redirect\r\n";
    case 308: return "HTTP/1.1 308 Permanent Redirect\r\n";
    case 400: return "HTTP/1.1 400 Bad Request\r\n";
    case 401: return "HTTP/1.1 401 Unauthorized\r\n";
    case 403: return "HTTP/1.1 403 Forbidden\r\n";
    case 404: return "HTTP/1.1 404 Not Found\r\n";
    case 405: return "HTTP/1.1 405 Method Not Allowed\r\n";
    case 406: return "HTTP/1.1 406 Not Acceptable\r\n";
    case 408: return "HTTP/1.1 408 Request Timeout\r\n";
    case 409: return "HTTP/1.1 409 Conflict\r\n";
    case 410: return "HTTP/1.1 410 Gone\r\n";
    case 412: return "HTTP/1.1 412 Precondition Failed\r\n";
    case 413: return "HTTP/1.1 413 Content Too Large\r\n";
    case 414: return "HTTP/1.1 414 URI Too Long\r\n";
    case 415: return "HTTP/1.1 415 Unsupported Media Type\r\n";
    case 417: return "HTTP/1.1 417 Expectation Failed\r\n";
    case 421: return "HTTP/1.1 421 Misdirected Request\r\n";
    case 422: return "HTTP/1.1 422 Unprocessable Content\r\n";
    case 426: return "HTTP/1.1 426 Upgrade Required\r\n";
    case 428: return "HTTP/1.1 428 Precondition Required\r\n";
    case 429: return "HTTP/1.1 429 Too Many Requests\r\n";
    case 431: return "HTTP/1.1 431 Request Header Fields Too Large\r\n";
    case 500: return "HTTP/1.1 500 Internal Server Error\r\n";
    case 501: return "HTTP/1.1 501 Not Implemented\r\n";
    case 502: return "HTTP/1.1 502 Bad Gateway\r\n";
    case 503: return "HTTP/1.1 503 Service Unavailable\r\n";
    case 504: return "HTTP/1.1 504 Gateway Timeout\r\n";
    case 505: return "HTTP/1.1 505 HTTP Version Not Supported\r\n";
    default: return {};
  }
}

// "Date: Mon, 16 Nov 2026 04:15:52 GMT\r\n", made once a second.
std::string_view date_line() noexcept {
  struct Cached {
    time_t second = -1;
    std::size_t size = 0;
    std::array<char, 48> text{};
  };
  thread_local Cached cached;
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (now.tv_sec != cached.second) {
    static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    tm utc{};
    gmtime_r(&now.tv_sec, &utc);
    // Not strftime: the names must not follow the locale.
    const int size = std::snprintf(
        cached.text.data(), cached.text.size(), "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
        kDays[static_cast<std::size_t>(utc.tm_wday)], utc.tm_mday, kMonths[static_cast<std::size_t>(utc.tm_mon)],
        utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
    cached.size = std::min(static_cast<std::size_t>(size), cached.text.size() - 1);
    cached.second = now.tv_sec;
  }
  return {cached.text.data(), cached.size};
}

// Text put together on the stack, so that `out` grows once for all of it.
class Head {
 public:
  void add(std::string_view text) noexcept {
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }
  void add(std::size_t number) noexcept { end_ = std::to_chars(end_, end_ + 20, number).ptr; }
  [[nodiscard]] std::string_view view() const noexcept {
    return {text_.data(), static_cast<std::size_t>(end_ - text_.data())};
  }

 private:
  std::array<char, 320> text_;  // a status line, our own header lines, and a content type of kMaxType
  char* end_ = text_.data();
};
constexpr std::size_t kMaxType = 100;

}  // namespace

void write_answer(const HttpAnswer& answer, const AnswerForm& form, std::string& out) {
  Head head;
  if (const std::string_view line = status_line(answer.status); !line.empty()) {
    head.add(line);
  } else {
    head.add("HTTP/1.1 ");
    head.add(static_cast<std::size_t>(answer.status));
    head.add(" \r\n");
  }
  head.add(date_line());
  if (!answer.content_type.empty()) {
    head.add("Content-Type: ");
    head.add(answer.content_type.substr(0, kMaxType));
    head.add("\r\n");
  }
  // These have no body by definition, and a length would say otherwise.
  const bool bodiless = answer.status == 204 || answer.status == 304;
  if (!bodiless) {
    head.add("Content-Length: ");
    head.add(answer.body.size());
    head.add("\r\n");
  }
  if (form.close) {
    head.add("Connection: close\r\n");
  } else if (form.keep_alive) {
    head.add("Connection: keep-alive\r\n");
  }
  if (answer.headers.empty()) {
    head.add("\r\n");
    out += head.view();
  } else {
    out += head.view();
    out += answer.headers;
    out += "\r\n";
  }
  if (!bodiless && !form.head_only) out += answer.body;
}

std::string_view reason_phrase(int status) noexcept {
  constexpr std::size_t kBefore = std::string_view("HTTP/1.1 200 ").size();
  const std::string_view line = status_line(status);
  return line.empty() ? "Error" : line.substr(kBefore, line.size() - kBefore - 2);
}

}  // namespace headgate::net
