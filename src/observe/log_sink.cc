// Notices as lines of the log.
#include <fmt/format.h>

#include <string>

#include "observe/log.h"
#include "observe/notices.h"
#include "observe/recent.h"

namespace headgate::observe {
namespace {

// Of one agent and policy that logs there is at most one line in this time; the next line says how many are left out.
constexpr Nanos kLogEvery = std::chrono::seconds{10};
// Beyond so many agents and policies the one heard of least lately is forgotten, and its next line is written at once.
constexpr std::size_t kMostLogged = 10'000;

LogLevel level_of(std::string_view kind) noexcept {
  if (is_everyday(kind)) return LogLevel::kDebug;
  for (const char* change : {"adaptive", "reload", "unknown_operation"}) {
    if (kind == change) return LogLevel::kInfo;
  }
  return LogLevel::kWarn;
}

class LogSink final : public NoticeSink {
 public:
  void on_notice(const Notice& notice) override {
    if (notice.kind == "exceeded" && notice.action == "log") return exceeded(notice);
    const LogLevel level = level_of(notice.kind);
    if (!logs(level)) return;
    log(level, notice.kind,
        {{"agent", notice.agent},
         {"operation", notice.operation},
         {"policy", notice.policy_id},
         {"to", notice.to},
         {"value", notice.value},
         {"text", notice.count > 1 ? fmt::format("{} ({} times by now)", notice.text, notice.count) : notice.text}});
  }

 private:
  struct Logged {
    Nanos at{0};  // 0: not yet
    std::int64_t left_out = 0;
  };

  // A line is all that a policy with `action: log` asks for.
  void exceeded(const Notice& notice) {
    if (!logs(LogLevel::kInfo)) return;
    Logged& logged = logged_.at(notice.agent + '\n' + notice.policy_id);
    if (logged.at > Nanos{0} && notice.time >= logged.at && notice.time - logged.at < kLogEvery) {
      ++logged.left_out;
      return;
    }
    log(LogLevel::kInfo, notice.kind,
        {{"agent", notice.agent},
         {"operation", notice.operation},
         {"policy", notice.policy_id},
         {"left_out", logged.left_out},
         {"text", notice.text}});
    logged = {notice.time, 0};
  }

  Recent<Logged> logged_{kMostLogged};
};

}  // namespace

std::shared_ptr<NoticeSink> make_log_sink() { return std::make_shared<LogSink>(); }

}  // namespace headgate::observe
