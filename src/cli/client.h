// The command line as a client of a server: its address, the token, and calls.
//
// One Client is one connection that is kept open between calls. Not for sharing between threads. A call is bounded by
// kConnectWithin and kAnswerWithin, an answer by kMostBytes; neither redirects nor proxies are followed, so a token
// reaches the named server only. Secrets never appear in messages.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::cli {

// The options of ClientOptions, for the help of commands that have them.
#define HEADGATE_CLI_SERVER_HELP                                      \
  "The server:\n"                                                     \
  "  --url URL           where it is (default: HEADGATE_URL, else\n"  \
  "                      http://127.0.0.1:7070)\n"                    \
  "  --token-file FILE   holds the token (default: HEADGATE_TOKEN)\n" \
  "  --cacert FILE       trust this certificate authority\n"
#define HEADGATE_CLI_MANAGING_HELP                                         \
  HEADGATE_CLI_SERVER_HELP                                                 \
  "  --data DIR          where a server on this machine keeps its admin\n" \
  "                      token, used if no other is given (default:\n"     \
  "                      HEADGATE_DATA, else ./headgate-data)\n"

// The server and the token, as options of every command that calls a server.
struct ClientOptions {
  std::string url;         // empty: HEADGATE_URL, else kDefaultUrl
  std::string token_file;  // empty: HEADGATE_TOKEN
  std::string ca_file;     // whose certificates to trust besides the system's
  std::string data;        // where admin.token is; empty: HEADGATE_DATA, else kDefaultData

  // --url, --token-file and --cacert.
  void add_to(Arguments arguments);
  // --data too, for commands that manage.
  void add_to_managing(Arguments arguments);
};

struct Response {
  int status = 0;
  std::string body;
};

class Client {
 public:
  static constexpr const char* kDefaultUrl = "http://127.0.0.1:7070";
  static constexpr const char* kDefaultData = "./headgate-data";
  static constexpr std::chrono::seconds kConnectWithin{5};
  static constexpr std::chrono::seconds kAnswerWithin{30};
  static constexpr std::size_t kMostBytes = 64 << 20;

  // kManage: where no token is named, the admin token of the server's data directory is taken, if the server is on this
  // machine.
  enum class Purpose { kAsk, kManage };
  [[nodiscard]] static Result<Client> open(const ClientOptions& options, Purpose purpose);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Any answer, whatever its status. An empty body sends none.
  [[nodiscard]] Result<Response> call(const char* method, std::string_view path, std::string_view body = {});
  // The JSON of an answer that is not an error; an error reads "code: message".
  [[nodiscard]] Result<nlohmann::ordered_json> json(const char* method, std::string_view path,
                                                    const nlohmann::ordered_json& body);
  [[nodiscard]] Result<nlohmann::ordered_json> json(const char* method, std::string_view path);

  // The answer to the last json(), exactly as it came, with a line break.
  [[nodiscard]] std::string received() const;

  // A header of the last answer; empty if it had none of that name.
  [[nodiscard]] std::string header(const char* name) const;

  // Calls may take this much longer than kAnswerWithin.
  void allow_extra(Nanos more) noexcept;
  // Calls take at most this long, instead of kAnswerWithin.
  void answer_within(Nanos most) noexcept;
  // While a call waits, `ready` is called whenever one of the descriptors can be read; false: the call is given up.
  void watch(std::vector<int> descriptors, std::function<bool()> ready);
  [[nodiscard]] const std::string& url() const noexcept;
  [[nodiscard]] bool has_token() const noexcept;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What an error's body says, as "code: message"; else the status and the beginning of the body.
[[nodiscard]] std::string error_text(const Response& response);

// The token of --token-file or HEADGATE_TOKEN; empty if there is none.
[[nodiscard]] Result<std::string> given_token(const ClientOptions& options);

// As path segments need it: everything but letters, digits and -._~ as %XX.
[[nodiscard]] std::string url_encoded(std::string_view text);

}  // namespace headgate::cli
