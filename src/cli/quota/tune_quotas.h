// `headgate tune` without a trace: quotas proposed from a server's ledger.
#pragma once

#include <string>

#include "cli/client.h"
#include "cli/command.h"

namespace headgate::cli {

struct TuneQuotasOptions {
  ClientOptions client;
  std::string since;      // empty: 30d
  std::string plan;       // empty: all
  bool commands = false;  // what to type, and nothing else
  double percentile = 95;
  double headroom = 1.2;
  bool json = false;
};

// Returns the exit code.
[[nodiscard]] int tune_quotas_command(const TuneQuotasOptions& options, const Terminal& terminal);

}  // namespace headgate::cli
