// GET /api/events, GET /api/alerts: what the server has to tell, as it happens and afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "api/http/call.h"
#include "api/http/event_feed.h"
#include "api/http/routes.h"
#include "service/alerts.h"

namespace headgate::api {
namespace {

constexpr std::string_view kEventHead =
    "HTTP/1.1 200 OK\r\n"
    "Content-Type: text/event-stream\r\n"
    "Cache-Control: no-store\r\n"
    "X-Accel-Buffering: no\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n"
    "\r\n";

std::optional<std::uint64_t> number_of(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return number;
}

Json alert_json(const service::Alert& alert) {
  const bool seen = !alert.acknowledged_by.empty();
  return {{"id", alert.notice.id},
          {"kind", alert.notice.kind},
          {"time", millis(alert.notice.time)},
          {"agent", text_or_null(alert.notice.agent)},
          {"operation", text_or_null(alert.notice.operation)},
          {"policy_id", text_or_null(alert.notice.policy_id)},
          {"to", text_or_null(alert.notice.to)},
          {"text", alert.notice.text},
          {"value", number_json(alert.notice.value)},
          {"count", alert.count},
          {"first_at", millis(alert.first_at)},
          {"last_at", millis(alert.notice.time)},
          {"acknowledged_by", text_or_null(alert.acknowledged_by)},
          {"acknowledged_at", seen ? Json(millis(alert.acknowledged_at)) : Json()}};
}

}  // namespace

void get_events(Call& call) {
  if (call.request.method == net::Method::kHead) {
    net::HttpAnswer answer;
    answer.content_type = "text/event-stream";
    return call.send(answer);
  }
  EventFeed& feed = *call.context.feed;
  const std::optional<std::uint64_t> last = number_of(call.request.header("last-event-id"));
  std::unique_ptr<net::Session> session =
      feed.listen(last.value_or(feed.newest()), [access = call.service().access, caller = call.caller](
                                                    Nanos now) mutable { return access->still_good(caller, now); });
  if (session == nullptr) {
    return call.fail(503, "too_many_listeners",
                     fmt::format("at most {} listen to events at a time", EventFeed::kMostListeners),
                     "Retry-After: 5\r\n");
  }
  call.reply.take_over(kEventHead, std::move(session));
}

void get_alerts(Call& call) {
  Json alerts = Json::array();
  for (const service::Alert& alert : call.context.alerts->latest()) alerts.push_back(alert_json(alert));
  call.send(Json{{"alerts", std::move(alerts)}});
}

void acknowledge(Call& call) {
  const std::optional<std::uint64_t> id = number_of(call.id);
  const std::optional<service::Alert> alert = id ? call.context.alerts->find(*id) : std::nullopt;
  if (!alert) return call.fail(404, "not_found", fmt::format("there is no alert \"{}\"", call.id));
  const std::string by = call.who().empty() ? "admin" : call.who();
  if (alert->acknowledged_by.empty()) {
    state::AuditEntry entry;
    entry.time = call.wall();
    entry.who = by;
    entry.action = "alert.acknowledge";
    entry.target = call.id;
    entry.before = text_of(alert_json(*alert));
    service::Alert after = *alert;
    after.acknowledged_by = by;
    after.acknowledged_at = entry.time;
    entry.after = text_of(alert_json(after));
    call.service().database->change({}, entry, {});
  }
  const std::optional<service::Alert> now = call.context.alerts->acknowledge(*id, by, call.wall());
  call.send(alert_json(now.value_or(*alert)));
}

void end_session(Call& call) {
  call.service().access->sign_out(access_request(call.request));
  call.send(Json{{"signed_out", true}});
}

}  // namespace headgate::api
