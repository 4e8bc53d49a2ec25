#include "cli/client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/descriptor.h"
#include "cli/view/terminal.h"
#include "headgate/version.h"
#include "net/http_client.h"
#include "net/io.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostTokenBytes = 4096;
constexpr std::size_t kShownBytes = 200;

Error cannot(std::string message, bool transient = false) { return {ErrorCode::kIo, std::move(message), transient}; }

struct IpAddress {
  int family = AF_UNSPEC;  // AF_UNSPEC: it is no address
  std::array<unsigned char, sizeof(in6_addr)> bytes{};

  bool operator==(const IpAddress&) const = default;
  [[nodiscard]] bool is_any() const { return bytes == decltype(bytes){}; }
};
IpAddress ip_address(std::string_view text) {
  IpAddress address;
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, std::string(text).c_str(), address.bytes.data()) != 1) continue;
    address.family = family;
    return address;
  }
  return {};
}

// Whether connections to that loopback address reach the listener. While a listener has 0.0.0.0 or [::], no other
// user's process can listen on an address that it includes. [::] includes IPv4 unless the system says otherwise.
bool is_reached_at(const IpAddress& listener, const IpAddress& loopback) {
  if (listener.family == AF_UNSPEC || loopback.family == AF_UNSPEC) return false;
  if (listener == loopback) return true;
  if (!listener.is_any()) return false;
  if (listener.family == loopback.family) return true;
  std::string only_six;
  std::ifstream("/proc/sys/net/ipv6/bindv6only") >> only_six;
  return listener.family == AF_INET6 && only_six == "0";
}

// The loopback address at which the URL reaches the running server of that folder; empty: it does not. Another user's
// process may listen on the same port while the server is down, or on another loopback address at any time, and must
// not be sent the folder's token. It cannot write the lock, which only its owner can.
// REQUIRES: is_loopback(url).
std::string address_of_server(const std::string& data, const net::HttpUrl& url) {
  const base::Descriptor file(::open((data + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  struct flock held {};
  held.l_type = F_RDLCK;
  held.l_whence = SEEK_SET;
  if (file.get() < 0 || ::fcntl(file.get(), F_OFD_GETLK, &held) != 0 || held.l_type == F_UNLCK) return {};
  std::array<char, 256> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  line = line.substr(0, line.find_first_of(" \n"));
  const Result<net::Address> listener = net::parse_address(line);
  if (!listener || std::to_string(listener->port) != url.port) return {};
  std::vector<std::string> addresses{url.host};
  if (url.host == "localhost") addresses = {"127.0.0.1", "::1"};
  for (const std::string& address : addresses) {
    if (is_reached_at(ip_address(listener->host), ip_address(address))) return address;
  }
  return {};
}

// What a header may carry: visible ASCII.
bool is_token(std::string_view text) {
  return !text.empty() && text.size() <= kMostTokenBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

std::string trimmed(std::string text) {
  constexpr const char* kBlank = " \t\r\n";
  text.erase(text.find_last_not_of(kBlank) + 1);
  text.erase(0, text.find_first_not_of(kBlank));
  return text;
}

bool read_token(const std::string& path, std::string& token) {
  std::ifstream file(path);
  if (!file) return false;
  std::string text(kMostTokenBytes + 2, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  token = trimmed(std::move(text));
  return is_token(token);
}

// "http://127.0.0.1:7070/" and "127.0.0.1:7070" both become "http://127.0.0.1:7070".
Result<std::string> normal_url(std::string_view text) {
  const auto refused = [](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--url (or HEADGATE_URL) {}", why)};
  };
  std::string url(text);
  if (url.find("://") == std::string::npos) url.insert(0, "http://");
  while (url.ends_with('/') && !url.ends_with("://")) url.pop_back();
  const Result<net::HttpUrl> parts = net::parse_http_url(url);
  if (!parts) return refused(parts.error().message);
  // Not shown: it may hold a password.
  if (!parts->user.empty()) return refused("must not hold a user or password; use a token");
  if (url.find_first_of("?#") != std::string::npos) return refused("must be scheme, host and port alone");
  return url;
}

}  // namespace

void ClientOptions::add_to(Arguments arguments) {
  arguments.option("--url", url).value_name("URL");
  arguments.option("--token-file", token_file).value_name("FILE");
  arguments.option("--cacert", ca_file).value_name("FILE");
}

void ClientOptions::add_to_managing(Arguments arguments) {
  add_to(arguments);
  arguments.option("--data", data).value_name("DIR");
}

struct Client::Impl {
  net::HttpClient http;
  std::string url;
  std::string token;
  std::string received{};
  Nanos within = kAnswerWithin;
  net::HttpClient::Watch watch{};

  // Why there was no answer.
  [[nodiscard]] std::string why(const net::HttpClient::Answer& answer) const {
    using Outcome = net::HttpClient::Outcome;
    switch (answer.outcome) {
      case Outcome::kTooLong: return fmt::format("{} answered more than {} MB", url, kMostBytes >> 20);
      case Outcome::kClosed: return fmt::format("{} {}", url, answer.why);
      case Outcome::kUntrusted:
        return fmt::format("cannot trust {}: {}; name its certificate authority with --cacert FILE", url, answer.why);
      case Outcome::kRefused:
        return fmt::format("cannot reach {}: {}; is the server running? start it with: headgate serve", url,
                           answer.why);
      default: return fmt::format("cannot reach {}: {}", url, answer.why);
    }
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::open(const ClientOptions& options, Purpose purpose) {
  std::string where = options.url.empty() ? std::string(environment("HEADGATE_URL")) : options.url;
  if (where.empty()) where = kDefaultUrl;
  Result<std::string> url = normal_url(where);
  if (!url) return std::move(url).error();
  Result<std::string> token = given_token(options);
  if (!token) return std::move(token).error();
  net::HttpClient::Options http{*net::parse_http_url(*url), options.ca_file, ""};
  if (token->empty() && purpose == Purpose::kManage && net::is_loopback(http.url)) {
    std::string data = options.data.empty() ? std::string(environment("HEADGATE_DATA")) : options.data;
    if (data.empty()) data = kDefaultData;
    // With the folder's token, this is the only address that is connected to.
    http.address = address_of_server(data, http.url);
    if (http.address.empty() || !read_token(data + "/admin.token", *token)) token->clear();
  }
  if (!options.ca_file.empty() && !std::ifstream(options.ca_file)) {
    return cannot(fmt::format("--cacert {} cannot be read", options.ca_file));
  }
  Result<net::HttpClient> opened = net::HttpClient::open(std::move(http));
  if (!opened) return cannot("--cacert " + opened.error().message);
  return Client(std::make_unique<Impl>(Impl{std::move(*opened), std::move(*url), std::move(*token)}));
}

Result<Response> Client::call(const char* method, std::string_view path, std::string_view body) {
  net::HttpClient::Request request{
      method, path, {"Accept: application/json", "User-Agent: headgate/" HEADGATE_VERSION}, body};
  if (!body.empty()) request.headers.emplace_back("Content-Type: application/json");
  if (has_token()) request.headers.push_back("Authorization: Bearer " + impl_->token);
  net::HttpClient::Answer answer = impl_->http.call(request, {kConnectWithin, impl_->within, kMostBytes}, impl_->watch);
  if (answer.outcome != net::HttpClient::Outcome::kAnswered) return cannot(impl_->why(answer), true);
  return Response{answer.status, std::move(answer.body)};
}

Result<ordered_json> Client::json(const char* method, std::string_view path) { return json(method, path, nullptr); }

Result<ordered_json> Client::json(const char* method, std::string_view path, const ordered_json& body) {
  const std::string text = body.is_null() ? "" : body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  Result<Response> response = call(method, path, text);
  if (!response) return std::move(response).error();
  const int status = response->status;
  if (status < 200 || status >= 300) {
    std::string message = error_text(*response);
    if (status == 401 && !has_token()) {
      message += "\nset HEADGATE_TOKEN, or name the server's data directory with --data DIR";
    }
    constexpr int kNotFound = 404;
    return Error{status == kNotFound ? ErrorCode::kNotFound : ErrorCode::kForbidden, std::move(message), status >= 500};
  }
  if (response->body.empty()) return ordered_json(ordered_json::object());
  impl_->received = std::move(response->body);
  ordered_json read = ordered_json::parse(impl_->received, nullptr, false);
  if (read.is_discarded()) return cannot(fmt::format("{}{} did not answer with JSON", impl_->url, path));
  return read;
}

std::string Client::received() const { return impl_->received + (impl_->received.ends_with('\n') ? "" : "\n"); }
std::string Client::header(const char* name) const { return impl_->http.header(name); }
void Client::allow_extra(Nanos more) noexcept { impl_->within = kAnswerWithin + more; }
void Client::answer_within(Nanos most) noexcept { impl_->within = most; }
void Client::watch(std::vector<int> descriptors, std::function<bool()> ready) {
  impl_->watch = {std::move(descriptors), std::move(ready)};
}
const std::string& Client::url() const noexcept { return impl_->url; }
bool Client::has_token() const noexcept { return !impl_->token.empty(); }

std::string error_text(const Response& response) {
  const ordered_json body = ordered_json::parse(response.body, nullptr, false);
  const auto text_of = [&](const char* key) {
    const bool there = body.is_object() && body.contains(key) && body[key].is_string();
    return there ? printable(body[key].get<std::string>()) : std::string();
  };
  const std::string code = text_of("error");
  const std::string message = text_of("message");
  if (!code.empty() && !message.empty()) return code + ": " + message;
  if (!code.empty() || !message.empty()) return fmt::format("{}{} (status {})", code, message, response.status);
  if (response.body.empty()) return fmt::format("the server answered with status {}", response.status);
  return fmt::format("the server answered with status {}: {}", response.status,
                     printable(std::string_view(response.body).substr(0, kShownBytes)));
}

Result<std::string> given_token(const ClientOptions& options) {
  std::string token;
  if (!options.token_file.empty()) {
    if (!read_token(options.token_file, token)) {
      return cannot(fmt::format("--token-file {} cannot be read, or holds no token", options.token_file));
    }
    return token;
  }
  token = trimmed(std::string(environment("HEADGATE_TOKEN")));
  if (!token.empty() && !is_token(token)) {
    return Error{ErrorCode::kInvalidArgument, "HEADGATE_TOKEN must be a token, in visible ASCII and without blanks"};
  }
  return token;
}

std::string url_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace headgate::cli
