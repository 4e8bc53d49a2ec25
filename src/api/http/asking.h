// What POST /v1/check and /v1/gate have in common: asking the engine, at once or later.
//
// Internal to src/api.
#pragma once

#include <string>
#include <utility>

#include "api/http/call.h"
#include "service/waiters.h"

namespace headgate::api {

// Buffers of this thread, so that answering allocates nothing once they have grown.
struct Buffers {
  std::string body;
  std::string headers;
  void clear() {
    body.clear();
    headers.clear();
  }
};
[[nodiscard]] Buffers& buffers();

// What an answer needs of its request, should it come later.
struct ReplyContext {
  std::string_view request_id;
  net::ErrorForm form = net::ErrorForm::kPlain;
  const service::Credential* credential =
      nullptr;  // that it was asked with; not there any more once the answer comes later
};

// The X-Request-Id line of an answer.
inline void append_request_id(std::string_view id, std::string& headers) {
  if (id.empty()) return;
  headers += "X-Request-Id: ";
  headers += id;
  headers += "\r\n";
}

// Counts a question that could not be read.
void count_error(const service::Service& service, observe::Protocol protocol, Nanos now);

// An error as the answer.
void answer_error(const net::HttpError& error, const ReplyContext& asked, Buffers& buffers, net::HttpAnswer& answer,
                  std::string_view members = {});
// 401, to a check whose token has ended while it waited.
void answer_revoked(const engine::CheckDecision& decision, const ReplyContext& asked, Buffers& buffers,
                    net::HttpAnswer& answer);

// Asks, and has `kAnswer` make the answer of the decision, now or once the check need not wait any more.
template <void (*kAnswer)(const engine::CheckDecision&, const ReplyContext&, Buffers&, net::HttpAnswer&)>
void ask_and_answer(Context& context, observe::Protocol protocol, const engine::Request& request, net::HttpReply& reply,
                    const ReplyContext& asked) {
  struct Later {
    net::HttpReply& reply;
    const ReplyContext& asked;
    const service::Access& access;
    std::shared_ptr<service::Ticket> ticket;
  } later{reply, asked, *context.service.access, nullptr};
  // One pointer, so that the function needs no memory of its own.
  const auto make = [&later]() -> engine::Engine::Done {
    later.ticket = std::make_shared<service::Ticket>();
    std::shared_ptr<net::LaterReply> answers = later.reply.later();
    later.ticket->abandoned = [answers] { return answers->abandoned(); };
    auto send = [answers, ticket = later.ticket, id = std::string(later.asked.request_id),
                 form = later.asked.form](const engine::CheckDecision& decided) {
      Buffers own;
      net::HttpAnswer answer;
      const auto fill = decided.why == engine::Why::kRevoked ? answer_revoked : kAnswer;
      fill(decided, {id, form}, own, answer);
      ticket->answered.store(true);
      answers->send(answer);
    };
    const service::Credential* const credential = later.asked.credential;
    return {std::move(send), credential != nullptr ? later.access.validity_of(*credential) : nullptr};
  };
  engine::CheckDecision decision;
  const std::uint64_t waiting = service::ask(context.service, protocol, request, decision, make);
  if (later.ticket != nullptr) {
    // Answered by now, perhaps: then the next sweep finds so.
    if (waiting != 0) context.waiters->add(waiting, std::move(later.ticket));
    return;
  }
  Buffers& mine = buffers();
  mine.clear();
  net::HttpAnswer answer;
  kAnswer(decision, asked, mine, answer);
  reply.send(answer);
}

}  // namespace headgate::api
