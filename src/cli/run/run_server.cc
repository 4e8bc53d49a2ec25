#include "cli/run/run_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

// People wait for it, after their command is done.
constexpr Nanos kRecordWithin = 5s;
constexpr Nanos kRecordUnasked = 1s;  // where the check had no answer
// A policy may queue the check as well; --wait extends this.
constexpr Nanos kCheckWithin = 10s;
constexpr Nanos kLeaveWithin = 2s;
constexpr Nanos kRenewWithin = 10s;

std::string path_of(const std::string& run) { return "/api/quotas/runs/" + url_encoded(run); }

}  // namespace

RunServer::~RunServer() { stop_keeping(); }

RunServer::Answer RunServer::check(const ordered_json& body, Nanos wait, WaitingLine& line) {
  using Kind = Answer::Kind;
  client_.answer_within(kCheckWithin + wait);
  client_.watch(line.descriptors(), [&line] { return line.react(); });
  Result<ordered_json> decision = client_.json("POST", "/api/quotas/check", body);
  client_.watch({}, nullptr);
  if (line.signal() != 0) return {Kind::kInterrupted, {}, {}};
  if (!decision) {
    const bool away = decision.error().transient || decision.error().code == ErrorCode::kIo;
    away_ = away;
    return {away ? Kind::kUnavailable : Kind::kRefused, {}, decision.error().message};
  }
  if (!decision->is_object() || !decision->contains("allowed")) {
    return {Kind::kUnavailable, {}, client_.url() + "/api/quotas/check did not answer with a decision"};
  }
  return {Kind::kDecision, std::make_shared<const ordered_json>(std::move(*decision)), {}};
}

void RunServer::keep(const std::string& run, Nanos every) {
  over_ = base::Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!over_) return;
  client_.answer_within(kRenewWithin);
  client_.watch({over_.get()}, [] { return false; });
  keeper_ = std::thread([this, path = path_of(run) + "/renew", every] { renew(path, every); });
}

void RunServer::renew(const std::string& path, Nanos every) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(every).count();
  const int timeout = static_cast<int>(std::clamp<std::int64_t>(milliseconds, 1, 3'600'000));
  pollfd over{over_.get(), POLLIN, 0};
  do {
    static_cast<void>(client_.call("POST", path));
  } while (::poll(&over, 1, timeout) == 0);
}

void RunServer::stop_keeping() {
  if (!keeper_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(over_.get(), &one, sizeof one));
  keeper_.join();
  client_.watch({}, nullptr);
}

void RunServer::leave(const std::string& run) {
  stop_keeping();
  client_.answer_within(kLeaveWithin);
  static_cast<void>(client_.call("DELETE", path_of(run)));
}

std::string RunServer::record(const ordered_json& body) {
  stop_keeping();
  client_.answer_within(away_ ? kRecordUnasked : kRecordWithin);
  client_.watch({signals_.descriptor()}, [this] {
    bool wanted = true;
    while (const auto info = signals_.take()) wanted = wanted && !asks_to_end(static_cast<int>(info->ssi_signo));
    return wanted;
  });
  const Result<ordered_json> done = client_.json("POST", "/api/quotas/executions", body);
  client_.watch({}, nullptr);
  return done ? std::string() : done.error().message;
}

}  // namespace headgate::cli
