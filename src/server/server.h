// The server: everything wired together, from the configuration to the sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"
#include "server/config.h"
#include "server/systemd.h"

namespace headgate::server {

class Server {
 public:
  // Everything is read, opened and bound, or nothing is: an Error says what could not be. Then it serves.
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(const Config& config,
                                                             const std::vector<InheritedSocket>& inherited = {});
  virtual ~Server() = default;  // stops

  // Where a listener really is; empty: it is off.
  [[nodiscard]] virtual std::string address(std::string_view listener) const = 0;
  // A link for a browser that signs its user in, once.
  [[nodiscard]] virtual std::string sign_in_link() = 0;
  // Policies and certificates are read again. What is wrong with them is logged, and the old ones serve on.
  virtual void reload(std::string_view why) = 0;
  virtual void toggle_emergency(std::string_view by) = 0;
  // Drains within the configured time, writes a snapshot, and ends. Once.
  virtual void stop() = 0;
};

// Serves until SIGTERM or SIGINT; SIGHUP reloads, SIGUSR1 toggles the emergency throttle. `started` is called once it
// serves. Call it before any other thread is started, since it blocks these signals in all of them.
[[nodiscard]] Result<void> run(const Config& config, const std::function<void(Server&)>& started);

}  // namespace headgate::server
