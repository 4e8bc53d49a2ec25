// The life of a server process: signals, and what the service manager is told.
#include <pthread.h>
#include <csignal>

#include <cerrno>
#include <cstring>

#include "server/server.h"

namespace headgate::server {

namespace {

sigset_t our_signals() noexcept {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) ::sigaddset(&signals, signal);
  return signals;
}

}  // namespace

Result<void> run(const Config& config, const std::function<void(Server&)>& started) {
  const sigset_t signals = our_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  observe::set_up_log(config.log);

  for (const std::string& note : config.notes)
    observe::log(observe::LogLevel::kWarn, "configuration", {{"note", note}});

  Result<std::vector<InheritedSocket>> inherited = inherited_sockets();
  if (!inherited) return std::move(inherited).error();
  Result<std::unique_ptr<Server>> server = Server::start(config, *inherited);
  if (!server) return std::move(server).error();
  started(**server);
  notify("READY=1");
  for (int signal = 0; ::sigwait(&signals, &signal) == 0;) {
    if (signal != SIGUSR1) break;
    (*server)->toggle_emergency("signal");
  }
  notify("STOPPING=1");
  // A second signal ends the process at once.
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (*server)->stop();
  return {};
}

}  // namespace headgate::server
