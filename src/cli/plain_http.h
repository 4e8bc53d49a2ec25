// HTTP/1.1 to a server on this machine, over one connection that is kept open between calls: what `headgate run` needs
// before every command, without the time that it takes to load libcurl. Everything else (TLS, other machines, proxies)
// is libcurl's.
//
// Not for sharing between threads. The head of an answer is bounded by kMostHead, with the heads of 1xx answers before
// it and trailers after it; its body by what the caller says.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::cli {

// Reads one answer out of bytes as they come.
class HttpReader {
 public:
  static constexpr std::size_t kMostHead = 64 << 10;
  explicit HttpReader(std::size_t most_body) : most_body_(most_body) {}

  enum class State { kMore, kDone, kBroken, kTooLong };
  [[nodiscard]] State feed(std::string_view bytes);
  // Nothing more comes; some answers end so.
  [[nodiscard]] State end();

  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] std::string& body() noexcept { return body_; }
  [[nodiscard]] std::string& head() noexcept { return head_; }  // for header_of
  // Whether the connection can carry another call.
  [[nodiscard]] bool reusable() const noexcept { return reusable_; }
  [[nodiscard]] bool begun() const noexcept { return begun_; }

 private:
  enum class Part { kHead, kLength, kUntilEnd, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };
  [[nodiscard]] State step();
  [[nodiscard]] bool read_head(std::string_view head);
  [[nodiscard]] State take_body();
  // Counts what is neither body nor its framing: heads of 1xx answers, the head itself and trailers. False: too much.
  [[nodiscard]] bool within_bound(std::size_t bytes);

  std::size_t most_body_;
  std::string in_;
  std::string head_;
  std::string body_;
  Part part_ = Part::kHead;
  std::uint64_t left_ = 0;
  std::size_t head_bytes_ = 0;
  int status_ = 0;
  bool reusable_ = true;
  bool begun_ = false;
};

// The first field of that name in the head of an answer; empty if there is none.
[[nodiscard]] std::string header_of(std::string_view head, std::string_view name);

struct HttpRequest {
  const char* method;
  std::string target;
  std::vector<std::string> headers;  // "Accept: application/json"
  std::string_view body;
};

class PlainHttp {
 public:
  // REQUIRES: the URL is plain http of this machine: localhost, 127.0.0.0/8 or ::1.
  explicit PlainHttp(std::string_view url);

  // An IP address in place of all that the host of the URL stands for.
  void connect_only_to(std::string address) { hosts_ = {std::move(address)}; }

  struct Answer {
    int status = 0;
    std::string body;
    std::string head;
  };
  struct Bounds {
    Nanos connect;
    Nanos answer;
    std::size_t body;
  };
  // While it waits, `ready` is called whenever one of `watched` can be read; false: the call is given up.
  [[nodiscard]] Result<Answer> call(const HttpRequest& request, const Bounds& bounds, const std::vector<int>& watched,
                                    const std::function<bool()>& ready);

 private:
  struct Waiting;
  [[nodiscard]] Result<void> connect(const Waiting& waiting, Nanos within);
  [[nodiscard]] Result<void> send(std::string_view bytes, const Waiting& waiting);

  std::string url_;
  std::vector<std::string> hosts_;  // addresses to try, in turn
  std::string host_header_;
  std::string prefix_;
  int port_ = 80;
  base::Descriptor socket_;
};

}  // namespace headgate::cli
