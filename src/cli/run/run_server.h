// The calls of one run: check, renew, leave, record. Not thread-safe.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "cli/client.h"
#include "cli/run/signals.h"
#include "cli/run/waiting_line.h"

namespace headgate::cli {

class RunServer {
 public:
  RunServer(Client client, Signals& signals) : client_(std::move(client)), signals_(signals) {}
  ~RunServer();
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;

  struct Answer {
    // kUnavailable: no answer, or a server error. kRefused: the request was rejected; a retry would not help.
    enum class Kind { kDecision, kRefused, kUnavailable, kInterrupted };
    Kind kind = Kind::kUnavailable;
    std::shared_ptr<const nlohmann::ordered_json> decision;  // of kDecision
    std::string message;                                     // of kRefused and kUnavailable
  };
  // May take `wait` longer than other calls, while `line` tells where it stands.
  [[nodiscard]] Answer check(const nlohmann::ordered_json& body, Nanos wait, WaitingLine& line);
  // From now on renews the run at these intervals, in a thread; what fails is tried again at the next.
  void keep(const std::string& run, Nanos every);
  // Ends a run, or takes it out of the line, as far as that can be done quickly.
  void leave(const std::string& run);
  // Why it could not be recorded; empty: it was. A signal to end breaks it off.
  [[nodiscard]] std::string record(const nlohmann::ordered_json& body);

 private:
  void renew(const std::string& path, Nanos every);
  void stop_keeping();

  Client client_;
  Signals& signals_;
  bool away_ = false;      // the check has had no answer
  base::Descriptor over_;  // readable: the thread is to end
  std::thread keeper_;
};

}  // namespace headgate::cli
