#include "cli/plain_http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/text.h"

namespace headgate::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

template <class Number>
bool whole_number(std::string_view text, Number& number, int radix = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, radix);
  return !text.empty() && error == std::errc{} && end == text.data() + text.size();
}

Error no_answer(std::string message) { return {ErrorCode::kIo, std::move(message), true}; }

}  // namespace

std::string header_of(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::string_view field = head.substr(0, head.find("\r\n"));
    const std::size_t colon = field.find(':');
    if (colon != std::string_view::npos && same_word(field.substr(0, colon), name)) {
      return std::string(base::trimmed(field.substr(colon + 1)));
    }
    head.remove_prefix(std::min(field.size() + 2, head.size()));
  }
  return {};
}

HttpReader::State HttpReader::feed(std::string_view bytes) {
  begun_ = begun_ || !bytes.empty();
  in_.append(bytes);
  while (true) {
    const Part before = part_;
    const std::size_t size = in_.size();
    const State state = step();
    if (state != State::kMore || (part_ == before && in_.size() == size)) return state;
  }
}

HttpReader::State HttpReader::end() {
  reusable_ = false;
  if (part_ == Part::kUntilEnd) return State::kDone;
  return State::kBroken;
}

HttpReader::State HttpReader::take_body() {
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, in_.size()));
  if (body_.size() + taken > most_body_) return State::kTooLong;
  body_.append(in_, 0, taken);
  in_.erase(0, taken);
  left_ -= taken;
  return State::kMore;
}

HttpReader::State HttpReader::step() {
  // One line, without its end; none if it has not come whole.
  const auto line = [this](std::string& text) {
    const std::size_t at = in_.find("\r\n");
    if (at == std::string::npos) return false;
    text = in_.substr(0, at);
    in_.erase(0, at + 2);
    return true;
  };
  std::string text;
  switch (part_) {
    case Part::kHead: {
      const std::size_t end = in_.find("\r\n\r\n");
      if (std::min(end, in_.size()) > kMostHead) return State::kBroken;
      if (end == std::string::npos) return State::kMore;
      head_ = in_.substr(0, end + 2);
      in_.erase(0, end + 4);
      return read_head(head_) && within_bound(head_.size()) ? State::kMore : State::kBroken;
    }
    case Part::kUntilEnd: left_ = in_.size(); return take_body();
    case Part::kLength:
      if (const State state = take_body(); state != State::kMore) return state;
      if (left_ == 0) part_ = Part::kDone;
      return State::kMore;
    case Part::kChunkSize:
      if (!line(text)) return in_.size() > kMostHead ? State::kBroken : State::kMore;
      if (!whole_number(base::trimmed(std::string_view(text).substr(0, text.find(';'))), left_, 16))
        return State::kBroken;
      part_ = left_ == 0 ? Part::kTrailer : Part::kChunk;
      return State::kMore;
    case Part::kChunk:
      if (const State state = take_body(); state != State::kMore) return state;
      if (left_ == 0) part_ = Part::kChunkEnd;
      return State::kMore;
    case Part::kChunkEnd:
      if (!line(text)) return in_.size() > 2 ? State::kBroken : State::kMore;
      part_ = Part::kChunkSize;
      return text.empty() ? State::kMore : State::kBroken;
    case Part::kTrailer:
      if (!line(text)) return in_.size() > kMostHead ? State::kBroken : State::kMore;
      if (text.empty()) part_ = Part::kDone;
      return within_bound(text.size() + 2) ? State::kMore : State::kBroken;
    case Part::kDone:
      if (!in_.empty()) reusable_ = false;
      return State::kDone;
  }
  return State::kBroken;
}

bool HttpReader::within_bound(std::size_t bytes) {
  head_bytes_ += bytes;
  return head_bytes_ <= kMostHead + 2;
}

bool HttpReader::read_head(std::string_view head) {
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr std::size_t kStatusAt = 9;
  const std::string_view first = head.substr(0, head.find("\r\n"));
  if (!first.starts_with(kVersion) || first.size() < kStatusAt + 3 ||
      !whole_number(first.substr(kStatusAt, 3), status_) || status_ < 100) {
    return false;
  }
  reusable_ = first[kVersion.size()] == '1';
  part_ = Part::kUntilEnd;
  for (head.remove_prefix(first.size() + 2); !head.empty(); head.remove_prefix(head.find("\r\n") + 2)) {
    const std::string_view field = head.substr(0, head.find("\r\n"));
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    const std::string_view value = base::trimmed(field.substr(std::min(colon + 1, field.size())));
    if (same_word(name, "Content-Length") && part_ == Part::kUntilEnd) {
      if (!whole_number(value, left_)) return false;
      part_ = Part::kLength;
    } else if (same_word(name, "Transfer-Encoding")) {
      if (!same_word(value, "chunked")) return false;
      part_ = Part::kChunkSize;
    } else if (same_word(name, "Connection") && same_word(value, "close")) {
      reusable_ = false;
    }
  }
  constexpr int kNoContent = 204;
  constexpr int kNotModified = 304;
  if (status_ / 100 == 1) {
    part_ = Part::kHead;  // the answer itself comes after it
  } else if (status_ == kNoContent || status_ == kNotModified) {
    part_ = Part::kDone;
  }
  return true;
}

// What else is waited for meanwhile, and until when.
struct PlainHttp::Waiting {
  const std::vector<int>& watched;
  const std::function<bool()>& ready;
  Clock::time_point until;
  const std::string& url;

  // Until the socket is ready for that.
  [[nodiscard]] Result<void> wait(int socket, short events) const {
    std::vector<pollfd> all{{socket, events, 0}};
    for (const int descriptor : watched) all.push_back({descriptor, POLLIN, 0});
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return no_answer(fmt::format("cannot reach {}: no answer in time", url));
      constexpr std::int64_t kStepMs = 3'600'000;
      if (::poll(all.data(), all.size(), static_cast<int>(std::min(left, kStepMs))) < 0 && errno != EINTR) {
        return no_answer(fmt::format("cannot reach {}: {}", url, std::strerror(errno)));
      }
      const bool told = std::any_of(all.begin() + 1, all.end(), [](const pollfd& one) { return one.revents != 0; });
      if (told && !ready()) return no_answer(fmt::format("cannot reach {}: given up", url));
      if (all.front().revents != 0) return {};
    }
  }
};

PlainHttp::PlainHttp(std::string_view url) : url_(url) {
  assert(url.starts_with("http://"));
  url.remove_prefix(url.find("://") + 3);
  const std::size_t slash = std::min(url.find('/'), url.size());
  prefix_ = url.substr(slash);
  host_header_ = url.substr(0, slash);
  std::string_view host = host_header_;
  std::string_view port;
  if (const std::size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']')) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  if (!port.empty() && (!whole_number(port, port_) || port_ < 1 || port_ > 65535)) port_ = 0;
  if (host == "localhost") {
    hosts_ = {"127.0.0.1", "::1"};
  } else {
    hosts_ = {std::string(host)};
  }
}

Result<void> PlainHttp::connect(const Waiting& waiting, Nanos within) {
  Waiting soon{waiting.watched, waiting.ready, std::min(waiting.until, Clock::now() + within), url_};
  int error = EADDRNOTAVAIL;
  for (const std::string& host : hosts_) {
    sockaddr_in four_address{};
    sockaddr_in6 six_address{};
    const bool four = ::inet_pton(AF_INET, host.c_str(), &four_address.sin_addr) == 1;
    if (port_ == 0 || (!four && ::inet_pton(AF_INET6, host.c_str(), &six_address.sin6_addr) != 1)) continue;
    four_address.sin_family = AF_INET;
    six_address.sin6_family = AF_INET6;
    four_address.sin_port = six_address.sin6_port = htons(static_cast<std::uint16_t>(port_));
    base::Descriptor socket(::socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return no_answer(fmt::format("cannot reach {}: {}", url_, std::strerror(errno)));
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto* address =
        four ? reinterpret_cast<const sockaddr*>(&four_address) : reinterpret_cast<const sockaddr*>(&six_address);
    error = 0;
    if (::connect(socket.get(), address, four ? sizeof four_address : sizeof six_address) != 0) error = errno;
    if (error == EINPROGRESS) {
      if (Result<void> done = soon.wait(socket.get(), POLLOUT); !done) return done;
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      socket_ = std::move(socket);
      return {};
    }
  }
  if (error == ECONNREFUSED) {
    return no_answer(
        fmt::format("cannot reach {}: connection refused; is the server running? start it with: headgate serve", url_));
  }
  return no_answer(fmt::format("cannot reach {}: {}", url_, std::strerror(error)));
}

Result<void> PlainHttp::send(std::string_view bytes, const Waiting& waiting) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      if (Result<void> done = waiting.wait(socket_.get(), POLLOUT); !done) return done;
    } else if (errno != EINTR) {
      return no_answer(fmt::format("cannot reach {}: {}", url_, std::strerror(errno)));
    }
  }
  return {};
}

Result<PlainHttp::Answer> PlainHttp::call(const HttpRequest& request, const Bounds& bounds,
                                          const std::vector<int>& watched, const std::function<bool()>& ready) {
  const Waiting waiting{watched, ready, Clock::now() + bounds.answer, url_};
  // An idle connection that has something to say has been closed. Nothing is sent twice: it might be done twice.
  pollfd idle{socket_.get(), POLLIN, 0};
  if (socket_ && ::poll(&idle, 1, 0) != 0) socket_.reset();
  if (!socket_) {
    if (Result<void> done = connect(waiting, bounds.connect); !done) return std::move(done).error();
  }
  // Kept by the call until it has its whole answer.
  std::string bytes =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", request.method, prefix_, request.target, host_header_);
  for (const std::string& header : request.headers) bytes += header + "\r\n";
  if (!request.body.empty() || std::string_view(request.method) == "POST") {
    bytes += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  bytes += "\r\n";
  bytes += request.body;
  HttpReader reader(bounds.body);
  HttpReader::State state = HttpReader::State::kMore;
  Result<void> sent = send(bytes, waiting);
  while (sent && state == HttpReader::State::kMore) {
    std::array<char, 16384> buffer;
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      state = reader.feed({buffer.data(), static_cast<std::size_t>(count)});
    } else if (count < 0 && errno == EAGAIN) {
      sent = waiting.wait(socket_.get(), POLLIN);
    } else if (count == 0 || errno != EINTR) {
      state = reader.end();
    }
  }
  if (!sent || state != HttpReader::State::kDone || !reader.reusable()) socket_.reset();
  if (!sent) return std::move(sent).error();
  if (state == HttpReader::State::kTooLong) {
    return no_answer(fmt::format("{} answered more than {} MB", url_, bounds.body >> 20));
  }
  if (state == HttpReader::State::kBroken) {
    return no_answer(reader.begun() ? fmt::format("cannot reach {}: what it answered is not HTTP, or not whole", url_)
                                    : fmt::format("{} closed the connection without an answer", url_));
  }
  return Answer{reader.status(), std::move(reader.body()), std::move(reader.head())};
}

}  // namespace headgate::cli
