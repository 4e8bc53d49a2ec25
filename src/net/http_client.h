// An HTTP/1.1 client for one URL, over one connection that is kept open between calls, with TLS for https.
//
// Not thread-safe. Redirects are not followed and proxies are not used, so a token reaches the named host only. A
// request is sent at most once. Names are resolved on a thread of their own, so that a slow resolver does not exceed
// the timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::net {

// The parts of "https://user:password@host:port/path?query".
struct HttpUrl {
  bool tls = false;
  std::string user;       // "user:password", percent-encoded; empty: none
  std::string authority;  // "host:port", as the Host header has it
  std::string host;       // without brackets
  std::string port;
  std::string target;  // "/path?query"; empty: nothing follows the host
};
[[nodiscard]] Result<HttpUrl> parse_http_url(std::string_view text);
// Whether that host is this machine: localhost, 127.0.0.0/8 or ::1.
[[nodiscard]] bool is_loopback(const HttpUrl& url) noexcept;

class HttpClient {
 public:
  struct Options {
    HttpUrl url;
    std::string ca_file;  // PEM certificate authorities, trusted besides the system's; empty: none
    std::string address;  // IP address that is connected to in place of the URL's host; empty: none
  };
  // Fails if the certificate authorities cannot be read.
  [[nodiscard]] static Result<HttpClient> open(Options options);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  struct Request {
    std::string_view method;
    std::string_view path;             // appended to the URL
    std::vector<std::string> headers;  // "Accept: application/json"
    std::string_view body;
  };
  struct Bounds {
    Nanos connect;
    Nanos answer;  // of the whole call
    std::size_t body;
  };
  // While a call waits, `ready` is called whenever one of the descriptors can be read; false: the call is given up.
  struct Watch {
    std::vector<int> descriptors;
    std::function<bool()> ready;
  };
  enum class Outcome : std::uint8_t {
    kAnswered,
    kTooLong,    // there is a status, but the body exceeds its bound
    kRefused,    // nothing listens there
    kUntrusted,  // its certificate could not be verified
    kClosed,     // it closed the connection without an answer
    kGivenUp,    // by Watch::ready
    kFailed,
  };
  struct Answer {
    Outcome outcome = Outcome::kFailed;
    int status = 0;
    std::string body;
    std::string why;  // there is no answer
  };
  [[nodiscard]] Answer call(const Request& request, const Bounds& bounds, const Watch& watch = {});

  // A header of the last answer; empty: it had none of that name.
  [[nodiscard]] std::string header(std::string_view name) const;

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headgate::net
