#include <fmt/format.h>

#include <vector>

#include "api/ws/websocket_api.h"
#include "base/json_pen.h"
#include "base/utf8.h"
#include "engine/check_json.h"

namespace headgate::api {

std::uint64_t AgentRegistry::join(const std::string& agent, std::shared_ptr<net::Link> link) {
  const std::lock_guard lock(mutex_);
  if (members_.count(agent) >= kMostPerAgent) return 0;
  members_.emplace(agent, Member{++last_, std::move(link)});
  return last_;
}

void AgentRegistry::leave(const std::string& agent, std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = members_.equal_range(agent);
  for (auto each = first; each != last; ++each) {
    if (each->second.number != number) continue;
    members_.erase(each);
    return;
  }
}

std::size_t AgentRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return members_.size();
}

void AgentRegistry::send(const std::string& agent, const std::shared_ptr<const std::string>& message) {
  std::vector<std::shared_ptr<net::Link>> links;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = members_.equal_range(agent);
    for (auto each = first; each != last; ++each) links.push_back(each->second.link);
  }
  for (const std::shared_ptr<net::Link>& link : links) {
    link->post([message](net::Session& session) {
      if (net::WebSocket* socket = net::as_websocket(session)) socket->send_text(*message);
    });
  }
}

void AgentRegistry::on_notice(const observe::Notice& notice) {
  if (notice.kind != "escalation" && notice.kind != "sustained_abuse") return;
  const std::string message_text =
      notice.text.empty() ? fmt::format("{} has exceeded {} again and again", notice.agent, notice.policy_id)
                          : notice.text;
  std::string text;
  {
    base::JsonPen pen(text);
    pen.begin();
    pen.text_field("type", "escalation");
    pen.text_field("kind", notice.kind);
    pen.text_field("policy_id", notice.policy_id);
    pen.text_field("agent", notice.agent);
    pen.text_field("operation", notice.operation);
    pen.text_field("to", notice.to);
    pen.text_field("message", message_text);
    pen.number_field("time", notice.time.count() / 1'000'000);
    pen.end();
  }
  base::repair(text);  // a text frame that is not UTF-8 would cost its reader the connection
  const auto message = std::make_shared<const std::string>(std::move(text));
  if (!notice.to.empty()) send(notice.to, message);
  if (!notice.agent.empty() && notice.agent != notice.to) send(notice.agent, message);
}

}  // namespace headgate::api
