#include "cli/client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/descriptor.h"
#include "cli/plain_http.h"
#include "cli/view/terminal.h"
#include "headgate/version.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostTokenBytes = 4096;
constexpr std::size_t kShownBytes = 200;

Error cannot(std::string message, bool transient = false) { return {ErrorCode::kIo, std::move(message), transient}; }

// The host, without brackets, and the port of "host:port" or "[host]:port". A path or a line end may follow.
struct HostAndPort {
  std::string_view host;
  std::string_view port;  // empty: none is given
};
HostAndPort host_and_port(std::string_view text) {
  text = text.substr(0, text.find_first_of("/\n"));
  HostAndPort found{text, {}};
  if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos && !text.ends_with(']')) {
    found = {text.substr(0, colon), text.substr(colon + 1)};
  }
  if (found.host.starts_with('[') && found.host.ends_with(']'))
    found.host = found.host.substr(1, found.host.size() - 2);
  return found;
}

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
std::string address_of_server(const std::string& data, std::string_view url) {
  const base::Descriptor file(::open((data + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  struct flock held {};
  held.l_type = F_RDLCK;
  held.l_whence = SEEK_SET;
  if (file.get() < 0 || ::fcntl(file.get(), F_OFD_GETLK, &held) != 0 || held.l_type == F_UNLCK) return {};
  std::array<char, 256> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  const HostAndPort listener =
      host_and_port(std::string_view(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))));
  const HostAndPort asked = host_and_port(url.substr(url.find("//") + 2));
  if (listener.port.empty() || listener.port != asked.port) return {};
  std::vector<std::string> addresses{std::string(asked.host)};
  if (asked.host == "localhost") addresses = {"127.0.0.1", "::1"};
  for (const std::string& address : addresses) {
    if (is_reached_at(ip_address(listener.host), ip_address(address))) return address;
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

// The host of a normal URL, without brackets.
std::string_view host_of(std::string_view url) {
  url.remove_prefix(url.find("://") + 3);
  url = url.substr(0, url.find('/'));
  if (url.starts_with('[')) return url.substr(1, url.find(']') - 1);
  return url.substr(0, url.find(':'));
}

struct Body {
  std::string text;
  bool too_long = false;
};

std::size_t take(char* data, std::size_t size, std::size_t count, void* into) {
  auto& body = *static_cast<Body*>(into);
  body.too_long = body.text.size() + size * count > Client::kMostBytes;
  if (body.too_long) return 0;
  body.text.append(data, size * count);
  return size * count;
}

struct EasyCloser {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct MultiCloser {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ListCloser {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

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
  std::optional<PlainHttp> plain;  // for a server on this machine without TLS; libcurl for all others
  // The handle is taken out of the multi handle after each call, so the order of their ends does not matter.
  std::unique_ptr<CURL, EasyCloser> easy;
  std::unique_ptr<CURLM, MultiCloser> multi;
  std::string url;
  std::string token;
  std::string ca_file;
  std::string received;
  std::string head;  // of the last answer that did not come by libcurl
  Nanos within = kAnswerWithin;
  std::vector<int> watched;
  std::function<bool()> ready;
  std::array<char, CURL_ERROR_SIZE> trouble{};

  [[nodiscard]] Result<void> start_curl();
  [[nodiscard]] std::string why(CURLcode code) const;
  [[nodiscard]] Result<void> transfer();
  [[nodiscard]] Result<Response> call(const char* method, std::string_view path, const std::vector<std::string>& lines,
                                      std::string_view body);
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::open(const ClientOptions& options, Purpose purpose) {
  auto impl = std::make_unique<Impl>();
  std::string where = options.url.empty() ? std::string(environment("HEADGATE_URL")) : options.url;
  if (where.empty()) where = kDefaultUrl;
  Result<std::string> url = normal_url(where);
  if (!url) return std::move(url).error();
  impl->url = std::move(*url);
  Result<std::string> token = given_token(options);
  if (!token) return std::move(token).error();
  impl->token = std::move(*token);
  std::string reached;  // with the folder's token: the only address that gets it
  if (impl->token.empty() && purpose == Purpose::kManage && is_loopback(impl->url)) {
    std::string data = options.data.empty() ? std::string(environment("HEADGATE_DATA")) : options.data;
    if (data.empty()) data = kDefaultData;
    reached = address_of_server(data, impl->url);
    if (reached.empty() || !read_token(data + "/admin.token", impl->token)) impl->token.clear();
  }
  impl->ca_file = options.ca_file;
  if (!impl->ca_file.empty() && !std::ifstream(impl->ca_file)) {
    return cannot(fmt::format("--cacert {} cannot be read", impl->ca_file));
  }
  if (impl->url.starts_with("http://") && is_loopback(impl->url)) {
    impl->plain.emplace(impl->url);
    if (!reached.empty()) impl->plain->connect_only_to(std::move(reached));
  } else if (Result<void> done = impl->start_curl(); !done) {
    return std::move(done).error();
  }
  return Client(std::move(impl));
}

Result<void> Client::Impl::start_curl() {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  easy.reset(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  multi.reset(kReady == CURLE_OK ? curl_multi_init() : nullptr);
  if (!easy || !multi) return cannot("libcurl cannot be started");
  return {};
}

std::string Client::Impl::why(CURLcode code) const {
  const std::string said = trouble[0] != '\0' ? trouble.data() : curl_easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_CONNECT: {
      long error = 0;
      curl_easy_getinfo(easy.get(), CURLINFO_OS_ERRNO, &error);
      const bool refused = error == ECONNREFUSED || said.find("refused") != std::string::npos;
      if (!refused) return fmt::format("cannot reach {}: {}", url, said);
      return fmt::format("cannot reach {}: connection refused; is the server running? start it with: headgate serve",
                         url);
    }
    case CURLE_OPERATION_TIMEDOUT: return fmt::format("cannot reach {}: no answer in time ({})", url, said);
    case CURLE_GOT_NOTHING: return fmt::format("{} closed the connection without an answer", url);
    case CURLE_PEER_FAILED_VERIFICATION:
      return fmt::format("cannot trust {}: {}; name its certificate authority with --cacert FILE", url, said);
    case CURLE_WRITE_ERROR: return fmt::format("{} answered more than {} MB", url, kMostBytes >> 20);
    default: return fmt::format("cannot reach {}: {}", url, said);
  }
}

// Waits in curl_multi_poll so that a terminal's keys are not kept waiting by a slow server.
Result<void> Client::Impl::transfer() {
  curl_multi_add_handle(multi.get(), easy.get());
  std::vector<curl_waitfd> also;
  for (const int descriptor : watched) also.push_back({descriptor, CURL_WAIT_POLLIN, 0});
  int running = 1;
  bool wanted = true;
  while (running > 0 && wanted) {
    constexpr int kStepMs = 1000;
    if (curl_multi_perform(multi.get(), &running) != CURLM_OK) break;
    if (running == 0) break;
    curl_multi_poll(multi.get(), also.data(), static_cast<unsigned>(also.size()), kStepMs, nullptr);
    const bool told = std::any_of(also.begin(), also.end(), [](const curl_waitfd& fd) { return fd.revents != 0; });
    if (told) wanted = ready();
  }
  CURLcode code = CURLE_ABORTED_BY_CALLBACK;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  const std::string told = code == CURLE_OK ? std::string() : why(code);
  curl_multi_remove_handle(multi.get(), easy.get());
  if (code == CURLE_OK) return {};
  return cannot(told, true);
}

Result<Response> Client::call(const char* method, std::string_view path, std::string_view body) {
  std::vector<std::string> headers{"Accept: application/json", "User-Agent: headgate/" HEADGATE_VERSION};
  if (!body.empty()) headers.emplace_back("Content-Type: application/json");
  if (!impl_->token.empty()) headers.push_back("Authorization: Bearer " + impl_->token);
  if (!impl_->plain) return impl_->call(method, path, headers, body);
  Result<PlainHttp::Answer> answer =
      impl_->plain->call({method, std::string(path), headers, body}, {kConnectWithin, impl_->within, kMostBytes},
                         impl_->watched, impl_->ready);
  if (!answer) return std::move(answer).error();
  impl_->head = std::move(answer->head);
  return Response{answer->status, std::move(answer->body)};
}

Result<Response> Client::Impl::call(const char* method, std::string_view path, const std::vector<std::string>& lines,
                                    std::string_view body) {
  CURL* curl = easy.get();
  curl_easy_reset(curl);  // keeps the connection
  const std::string target = url + std::string(path);
  Body answer;
  std::unique_ptr<curl_slist, ListCloser> headers;
  const auto add_header = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  for (const std::string& line : lines) add_header(line);
  add_header("Expect:");
  const auto milliseconds = [](Nanos span) {
    return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
  };
  trouble[0] = '\0';
  curl_easy_setopt(curl, CURLOPT_URL, target.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, trouble.data());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(kConnectWithin));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, milliseconds(within));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
  if (is_loopback(url)) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (!ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file.c_str());
  if (!body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  } else if (std::string_view(method) == "POST") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, 0L);
  }
  if (Result<void> done = transfer(); !done) return std::move(done).error();
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  return Response{static_cast<int>(status), std::move(answer.text)};
}

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
std::string Client::header(const char* name) const {
  if (impl_->plain) return header_of(impl_->head, name);
  curl_header* found = nullptr;
  const bool there = curl_easy_header(impl_->easy.get(), name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK;
  return there ? found->value : "";
}
void Client::allow_extra(Nanos more) noexcept { impl_->within = kAnswerWithin + more; }
void Client::answer_within(Nanos most) noexcept { impl_->within = most; }
void Client::watch(std::vector<int> descriptors, std::function<bool()> ready) {
  impl_->watched = std::move(descriptors);
  impl_->ready = std::move(ready);
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

Result<std::string> normal_url(std::string_view text) {
  const auto refused = [&](const char* why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--url (or HEADGATE_URL) {}", why)};
  };
  std::string url(text);
  if (url.find("://") == std::string::npos) url.insert(0, "http://");
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return refused("must begin with http:// or https://");
  // Not shown: it may hold a password.
  if (url.find('@') != std::string::npos) return refused("must not hold a user or password; use a token");
  if (url.find_first_of("?# \t\r\n") != std::string::npos) return refused("must be scheme, host and port alone");
  if (host_of(url).empty()) return refused("must name a host");
  while (url.ends_with('/')) url.pop_back();
  return url;
}

bool is_loopback(std::string_view url) {
  const std::string_view host = host_of(url);
  if (host == "localhost" || host == "::1") return true;
  // Digits and dots only: 127.example.com is somebody else's.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
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
