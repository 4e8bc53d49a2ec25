#include "api/ws/websocket_api.h"

#include <fmt/format.h>

#include <deque>
#include <unordered_set>
#include <utility>

#include "api/http/answer.h"
#include "base/json_pen.h"
#include "base/utf8.h"
#include "engine/check_json.h"

namespace headgate::api {
namespace {

using engine::Field;
using engine::set_of;

constexpr std::size_t kMostWaiting = 100;      // of one connection; further checks do not wait
constexpr std::size_t kMostAnswerless = 1024;  // of one connection; no more is read until one of them is answered
// Bytes of messages that are kept while a connection is being identified; further ones are refused.
constexpr std::size_t kMostKept = 128 << 10;
constexpr std::size_t kMaxUnsigned = 4 << 10;  // of a message before the agent is identified
constexpr std::string_view kWsChannel = "ws";
constexpr engine::FieldSet kEnvelope = set_of(Field::kType) | set_of(Field::kId);

// One for all connections of a thread: a parser's memory is more than all the rest of an idle connection.
engine::MessageReader& messages() {
  thread_local engine::MessageReader of_this_thread;
  return of_this_thread;
}

void append_text_field(std::string_view name, std::string_view value, std::string& out) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":", name);
  if (value.empty()) {
    out += "null";
  } else {
    base::append_json_text(value, out);
  }
}

// What a decision is told in: warnings, then the answer. `id` is `,"id":7` or nothing.
std::vector<std::string> frames_of(const engine::CheckDecision& decision, std::string_view id) {
  std::vector<std::string> frames;
  if (decision.why == engine::Why::kInvalid) {
    frames.push_back(fmt::format(R"({{"type":"error"{},"error":"invalid_check","message":)", id));
    base::append_json_text(decision.problem, frames.back());
    frames.back() += '}';
    return frames;
  }
  for (const engine::Warning& warning : decision.warnings) {
    if (!decision.allowed || warning.kind != engine::Warning::Kind::kApproaching) continue;
    std::string& frame = frames.emplace_back(fmt::format(R"({{"type":"rate_limit_warning"{})", id));
    append_text_field("tier", decision.tier, frame);
    frame += R"(,"remaining":)";
    base::append_json_number(engine::to_millionths(warning.remaining), frame);
    frame += R"(,"capacity":)";
    base::append_json_number(engine::to_millionths(warning.capacity), frame);
    append_text_field("policy_id", decision.policy(warning.policy).id, frame);
    frame += '}';
  }
  std::string json;
  engine::append_json(decision, json);
  std::string& frame = frames.emplace_back();
  if (decision.allowed) {
    frame = fmt::format(R"({{"type":"decision"{},)", id);
  } else {
    frame = fmt::format(R"({{"type":"rate_limited"{},)", id);
    if (decision.tier.empty()) frame += R"("tier":null,)";
    if (decision.denied_by() == nullptr) frame += R"("policy_id":null,)";
  }
  frame.append(json, 1);
  return frames;
}

void end_revoked(net::WebSocket& socket) {
  constexpr int kPolicyViolation = 1008;
  socket.close(kPolicyViolation, "the token has expired or was revoked");
}

class WsHandler final : public net::WebSocketHandler {
 public:
  WsHandler(const service::Service& service, std::shared_ptr<AgentRegistry> registry, const service::Caller& caller,
            const net::Peer& peer)
      : service_(service), registry_(std::move(registry)), caller_(caller), peer_(peer) {}

  void message(net::WebSocket& socket, std::string_view text) override {
    try {
      if (identifying_) return keep(socket, text);
      answer(socket, text);
    } catch (const std::bad_alloc&) {
      throw;  // closes the connection
    } catch (const std::exception& error) {
      send_error(socket, "internal_error", error.what());
    }
  }

  void tick(net::WebSocket& socket) noexcept override { (void)good(socket); }

  void closed() noexcept override {
    if (member_ != 0) registry_->leave(agent_, member_);
    member_ = 0;
    kept_.clear();
    // The connection is gone: no answer can be sent, and none removes itself from the set.
    for (const std::uint64_t ticket : std::exchange(*waiting_, {})) service_.engine->queue().cancel(ticket);
  }

  [[nodiscard]] bool full() const noexcept override { return waiting_->size() >= kMostAnswerless; }
  [[nodiscard]] bool busy() const noexcept override { return identifying_ || !waiting_->empty(); }

 private:
  // Whether what the connection has identified itself by is still good; closes it if not.
  bool good(net::WebSocket& socket) noexcept {
    if (service_.access->still_good(caller_, socket.now())) [[likely]]
      return true;
    end_revoked(socket);
    return false;
  }

  void answer(net::WebSocket& socket, std::string_view text) {
    if (!good(socket)) return;
    const engine::MessageReader& message = messages();
    if (const Result<void> read = messages().read(text); !read) return refuse(socket, read.error());
    const engine::LineFields& fields = message.fields();
    if (fields.type.empty()) {
      return send_error(socket, "invalid_message", R"(type is required: "identify", or what the agent wants to do)");
    }
    if (fields.type == "identify") return identify(socket, message, text);
    if (agent_.empty()) {
      return send_error(socket, "not_identified",
                        R"(the first message must be {"type": "identify", "agent": ..., "token": ...})");
    }
    if (fields.type == "settle" || fields.type == "release" || fields.type == "renew") return lease(socket, message);
    check(socket, message);
  }

  // ---- who is there ----

  void identify(net::WebSocket& socket, const engine::MessageReader& message, std::string_view text) {
    const engine::FieldSet allowed = kEnvelope | set_of(Field::kAgent) | set_of(Field::kToken);
    if (const Result<void> fine = message.only(allowed, "an identify message"); !fine)
      return refuse(socket, fine.error());
    if (!agent_.empty()) {
      return send_error(socket, "already_identified", fmt::format("this connection speaks for \"{}\" already", agent_));
    }
    // Until it is identified, it is limited by its address.
    Check check;
    check.operation = "identify";
    check.ip = peer_.ip;
    check.channel = kWsChannel;
    engine::CheckDecision decision;
    const auto later = [&]() -> engine::Engine::Done {
      identifying_ = true;
      kept_.emplace_front(text);
      std::string id;
      message.append_id(id);
      return [this, link = socket.link(), id = std::move(id)](const engine::CheckDecision& answer) {
        if (link == nullptr) return;
        // Runs only while the connection lives, and with it this handler.
        link->post([this, allowed = answer.allowed, frames = frames_of(answer, id)](net::Session& session) {
          net::WebSocket* to = net::as_websocket(session);
          if (to != nullptr) go_on(*to, allowed, frames);
        });
      };
    };
    const engine::Account account;
    const engine::Request request{socket.now(), check, account, engine::OnDenial::kAnswer};
    if (service::ask(service_, observe::Protocol::kWebSocket, request, decision, later) != 0) return;
    if (!decision.allowed) return send_decision(socket, decision);
    enter(socket, message);
  }

  // The check of an identify message is answered: that message is the first of those that were kept meanwhile.
  void go_on(net::WebSocket& socket, bool allowed, const std::vector<std::string>& frames) {
    std::deque<std::string> kept = std::exchange(kept_, {});
    identifying_ = false;
    if (kept.empty()) return;  // closed
    if (!allowed) {
      for (const std::string& frame : frames) socket.send_text(frame);
    } else if (messages().read(kept.front())) {
      enter(socket, messages());
    }
    kept.pop_front();
    for (const std::string& text : kept) message(socket, text);
  }

  void keep(net::WebSocket& socket, std::string_view text) {
    std::size_t bytes = text.size();
    for (const std::string& each : kept_) bytes += each.size();
    if (bytes <= kMostKept) {
      kept_.emplace_back(text);
      return;
    }
    send_error(socket, "too_many_messages", "wait for the answer to the identify message before sending so much");
  }

  void enter(net::WebSocket& socket, const engine::MessageReader& message) {
    const engine::LineFields& fields = message.fields();
    if (!fields.token.empty()) {
      service::Admission admission = service_.access->by_token(fields.token, peer_.ip);
      if (admission.refusal) return refuse(socket, *admission.refusal);
      caller_ = std::move(admission.caller);
    } else if (!caller_.known) {
      service::Admission admission = service_.access->without_token(view_of(peer_));
      if (admission.refusal) return refuse(socket, *admission.refusal);
      caller_ = std::move(admission.caller);
    }
    std::string agent(fields.check.agent.empty() ? std::string_view(caller_.agent) : fields.check.agent);
    if (agent.empty() || agent.size() > kMaxNameBytes || !base::is_plain_text(agent)) {
      return send_error(socket, "invalid_message",
                        fmt::format("agent must be 1 to {} bytes of text without control characters, got {}",
                                    kMaxNameBytes, agent.size()));
    }
    if (const auto refusal = service_.access->subjects().may_name(caller_, state::Bound::kAgent, agent)) {
      return refuse(socket, *refusal);
    }
    agent_ = std::move(agent);
    socket.set_standing(standing_of(caller_));
    if (socket.link() != nullptr) member_ = registry_->join(agent_, socket.link());
    std::string out = R"({"type":"identified")";
    message.append_id(out);
    append_text_field("agent", agent_, out);
    out += '}';
    socket.send_text(out);
  }

  // ---- what it asks ----

  void check(net::WebSocket& socket, const engine::MessageReader& message) {
    const engine::LineFields& fields = message.fields();
    const bool named = fields.type != "check";
    const engine::FieldSet allowed =
        (kEnvelope | engine::kCheckFields) & ~(named ? set_of(Field::kOperation) : engine::FieldSet{0});
    const std::string what =
        named ? fmt::format("a message of type \"{}\"", base::shortened(fields.type, 60)) : "a check";
    if (const Result<void> fine = message.only(allowed, what); !fine) return refuse(socket, fine.error());
    Check check = fields.check;
    if (named) check.operation = fields.type;
    if (!check.agent.empty() && check.agent != agent_) {
      return send_error(
          socket, "wrong_agent",
          fmt::format("this connection speaks for \"{}\", not for \"{}\"", agent_, base::shortened(check.agent, 60)));
    }
    check.agent = agent_;
    if (check.channel.empty()) check.channel = kWsChannel;
    if (const auto refusal = service_.access->believe(caller_, view_of(peer_), check)) return refuse(socket, *refusal);
    engine::CheckDecision decision;
    const std::shared_ptr<net::Link>& link = socket.link();
    // Known only once the engine has the check, and needed only on this thread, when the answer is back here.
    std::shared_ptr<std::uint64_t> ticket;
    const auto later = [&]() -> engine::Engine::Done {
      ticket = std::make_shared<std::uint64_t>(0);
      std::string id;
      message.append_id(id);
      auto send = [ticket, id = std::move(id), link, waiting = waiting_](const engine::CheckDecision& answer) {
        if (link == nullptr) return;
        const bool revoked = answer.why == engine::Why::kRevoked;
        link->post([ticket, waiting, revoked, frames = frames_of(answer, id)](net::Session& session) {
          waiting->erase(*ticket);
          net::WebSocket* to = net::as_websocket(session);
          if (to == nullptr) return;
          if (revoked) return end_revoked(*to);
          for (const std::string& frame : frames) to->send_text(frame);
        });
      };
      return {std::move(send), service_.access->validity_of(caller_)};
    };
    const bool may_wait = waiting_->size() < kMostWaiting && link != nullptr;
    const engine::Account account{caller_.owner};
    const engine::Request request{socket.now(), check, account,
                                  may_wait ? engine::OnDenial::kQueue : engine::OnDenial::kAnswer};
    const std::uint64_t waits = service::ask(service_, observe::Protocol::kWebSocket, request, decision, later);
    if (waits == 0) return send_decision(socket, decision);
    *ticket = waits;
    waiting_->insert(waits);
  }

  void lease(net::WebSocket& socket, const engine::MessageReader& message) {
    const engine::LineFields& fields = message.fields();
    const bool settles = fields.type == "settle";
    const engine::FieldSet allowed =
        kEnvelope | set_of(Field::kLeaseId) | (settles ? set_of(Field::kCost) : engine::FieldSet{0});
    if (const Result<void> fine = message.only(allowed, fmt::format("a {} message", fields.type)); !fine) {
      return refuse(socket, fine.error());
    }
    if (fields.lease_id.empty()) return send_error(socket, "invalid_message", "lease is required: whose hold is it?");
    if (settles && !fields.has(Field::kCost)) {
      return send_error(socket, "invalid_message", "cost is required: a number, or an object by unit");
    }
    std::string out = settles                  ? R"({"type":"settled")"
                      : fields.type == "renew" ? R"({"type":"renewed")"
                                               : R"({"type":"released")";
    message.append_id(out);
    append_text_field("lease", fields.lease_id, out);
    if (fields.type == "renew") {
      const Result<Nanos> until = service_.engine->holds().renew(fields.lease_id, agent_);
      if (!until) return refuse(socket, until.error());
      fmt::format_to(std::back_inserter(out), R"(,"expires_at":{}}})", until->count() / 1'000'000);
      return socket.send_text(out);
    }
    const Result<engine::Settled> settled =
        settles ? service_.engine->holds().settle(fields.lease_id, agent_, fields.check.costs)
                : service_.engine->holds().release(fields.lease_id, agent_);
    if (!settled) return refuse(socket, settled.error());
    if (service_.wake) service_.wake();
    out += R"(,"costs":{)";
    for (const auto& [unit, amount] : settled->costs) {
      if (out.back() != '{') out += ',';
      base::append_json_text(unit, out);
      out += ':';
      base::append_json_number(engine::to_millionths(amount), out);
    }
    out += R"(},"overrun":)";
    base::append_json_number(engine::to_millionths(settled->overrun), out);
    out += settled->again ? R"(,"again":true})" : R"(,"again":false})";
    socket.send_text(out);
  }

  // ---- how it is told ----

  static void send_decision(net::WebSocket& socket, const engine::CheckDecision& decision) {
    std::string id;
    messages().append_id(id);
    for (const std::string& frame : frames_of(decision, id)) socket.send_text(frame);
  }

  static void send_error(net::WebSocket& socket, std::string_view code, std::string_view message) {
    std::string out = R"({"type":"error")";
    messages().append_id(out);
    append_text_field("error", code, out);
    append_text_field("message", message, out);
    out += '}';
    socket.send_text(out);
  }

  static void refuse(net::WebSocket& socket, const service::Refusal& refusal) {
    send_error(socket, refusal.code, refusal.message);
  }

  static void refuse(net::WebSocket& socket, const Error& error) {
    send_error(socket,
               error.code == ErrorCode::kNotFound    ? "not_found"
               : error.code == ErrorCode::kForbidden ? "wrong_agent"
                                                     : "invalid_message",
               error.message);
  }

  const service::Service& service_;
  const std::shared_ptr<AgentRegistry> registry_;
  service::Caller caller_;
  const net::Peer peer_;
  std::string agent_;             // empty: not identified
  bool identifying_ = false;      // the check of an identify message is on its way
  std::deque<std::string> kept_;  // that message, and what came since
  std::uint64_t member_ = 0;      // of the registry
  // What cancels the checks that wait. Touched by the connection's own thread only; shared with answers on their way.
  const std::shared_ptr<std::unordered_set<std::uint64_t>> waiting_ =
      std::make_shared<std::unordered_set<std::uint64_t>>();
};

void refuse_upgrade(net::Upgrade asked, const net::HttpRequest& request, net::HttpReply& reply) {
  constexpr std::string_view kUpgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
  if (asked == net::Upgrade::kBad) {
    return send_error(request, reply,
                      {400, "invalid_request",
                       "an upgrade to WebSocket must be a GET with Connection: Upgrade and a Sec-WebSocket-Key of 16 "
                       "bytes in base64"});
  }
  const std::string_view message = asked == net::Upgrade::kBadVersion
                                       ? "Sec-WebSocket-Version must be 13"
                                       : "this address speaks WebSocket: send Upgrade: websocket";
  send_error(request, reply, {426, "upgrade_required", message}, kUpgrade);
}

}  // namespace

std::unique_ptr<net::WebSocketHandler> make_websocket_handler(const service::Service& service,
                                                              std::shared_ptr<AgentRegistry> registry,
                                                              const service::Caller& caller, const net::Peer& peer) {
  return std::make_unique<WsHandler>(service, std::move(registry), caller, peer);
}

std::function<void(const net::HttpRequest&, net::HttpReply&, const service::Caller&)> make_websocket_upgrade(
    const service::Service& service, std::shared_ptr<AgentRegistry> registry, Nanos identify_within) {
  return [&service, registry = std::move(registry), identify_within](
             const net::HttpRequest& request, net::HttpReply& reply, const service::Caller& /*caller*/) {
    // A token may come with the request or, since browsers cannot send it so, with the first message.
    const service::Admission admission = service.access->asks(access_request(request));
    const bool later = admission.refusal && admission.refusal->status == 401 && request.count("authorization") == 0;
    if (admission.refusal && !later) return api::refuse(request, reply, *admission.refusal);
    const net::Upgrade asked = net::websocket_upgrade(request);
    if (asked == net::Upgrade::kYes) {
      const service::Caller caller = later ? service::Caller{} : admission.caller;
      if (!later) reply.standing = standing_of(caller);
      net::WebSocketLimits limits;
      limits.max_unsigned = kMaxUnsigned;
      limits.sign_in = identify_within;
      reply.take_over(
          net::websocket_accept_head(request),
          net::make_websocket_session(make_websocket_handler(service, registry, caller, *request.peer), limits));
      return;
    }
    refuse_upgrade(asked, request, reply);
  };
}

}  // namespace headgate::api
