// What a database must do for the ledger; LedgerWriter does the rest.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "quota/ledger.h"

namespace headgate::quota {

// Borrowed from the entries it was made of.
struct LedgerBatch {
  std::uint64_t number = 0;                                // counts up; names the batch to written()
  std::vector<const Execution*> executions{};              // by user, then as they came
  std::vector<std::pair<const UsageKey*, Usage>> usage{};  // each key once, in order
};

// write(), written() and prune() come from one thread, the reads from any.
class LedgerBackend {
 public:
  virtual ~LedgerBackend() = default;

  enum class Fate : std::uint8_t { kNotWritten, kUnknown };
  struct Failure {
    Error error;
    Fate fate = Fate::kNotWritten;  // kUnknown: the database was lost before it answered; written() will tell
  };
  // All of it or nothing, on disk when it returns. With nothing in it something is written all the same, to see whether
  // that works.
  [[nodiscard]] virtual std::optional<Failure> write(const LedgerBatch& batch) = 0;
  // Whether the batch of that number, the last one, was written; if not, it never will be.
  [[nodiscard]] virtual Result<bool> written(std::uint64_t number) = 0;

  struct Expiry {
    Nanos executions{0};  // what began before
    Nanos usage{0};       // days that began before
    std::size_t rows = 0;
  };
  // Takes at most so many rows away, oldest first, and says how many it were.
  [[nodiscard]] virtual Result<std::size_t> prune(const Expiry& expiry) = 0;

  [[nodiscard]] virtual Result<std::vector<Execution>> executions(const Ledger::ExecutionQuery& query) = 0;
  [[nodiscard]] virtual Result<std::vector<UsageRow>> usage(const Ledger::UsageQuery& query) = 0;
};

}  // namespace headgate::quota
