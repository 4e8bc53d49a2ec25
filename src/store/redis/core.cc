#include "store/redis/core.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/utf8.h"
#include "store/redis/breaker.h"

namespace headgate::store::redis {
namespace {

using std::chrono::milliseconds;

// After which a connection that has answered nothing is given up: later than the server counts as away (see Breaker).
constexpr int kDebtDeadlines = 10;
constexpr Nanos kLeastDebt = 2 * Breaker::kOver;

}  // namespace

Core::Core(const Options& wanted, Observer& told, std::shared_ptr<const TlsRules> rules)
    : options(wanted),
      observer(told),
      tls(std::move(rules)),
      patience(std::max<Nanos>(milliseconds{200}, wanted.deadline)),
      requests({wanted.deadline, wanted.max_outstanding}) {}

Connection::Rules Core::rules(Greeting greeting) const {
  return {options.connect_timeout,
          std::max<Nanos>(kLeastDebt, options.deadline * kDebtDeadlines),
          options.max_outstanding,
          options.max_reply_bytes,
          tls,
          std::move(greeting)};
}

void Core::report(std::string_view kind, const std::string& text) {
  if (problems_.begins(kind, loop.now())) observer.on_problem(kind, text);
}

std::string_view word_of(std::string_view text) noexcept { return text.substr(0, text.find(' ')); }

Error error_of(std::string_view text) {
  static constexpr std::array<std::string_view, 11> kPassing = {"LOADING",    "BUSY",        "OOM",      "MISCONF",
                                                                "READONLY",   "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
                                                                "NOREPLICAS", "MOVED",       "ASK"};
  const std::string_view word = word_of(text);
  const bool forbidden = word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM";
  const bool passing = std::find(kPassing.begin(), kPassing.end(), word) != kPassing.end();
  return {forbidden ? ErrorCode::kForbidden : ErrorCode::kIo, base::shortened(text, 300), passing};
}

}  // namespace headgate::store::redis
