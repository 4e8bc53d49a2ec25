// An answer that comes before its handler returns, or after it from another thread.
//
// Safe for concurrent use: answer() once, from anywhere; give() once, by the handler.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "api/http/call.h"
#include "base/background.h"

namespace headgate::api {

class Handoff : public std::enable_shared_from_this<Handoff> {
 public:
  explicit Handoff(const Call& call) : request_id_(call.request_id), form_(net::error_form_of(call.request)) {}

  struct Answer {
    int status = 200;
    std::string body;
    std::string headers;
    std::string content_type = "application/json";
  };

  void answer(Answer answer) {
    std::shared_ptr<net::LaterReply> later;
    {
      const std::lock_guard guard(mutex_);
      if (later_ == nullptr) {
        ready_ = std::move(answer);
        return;
      }
      later = later_;
    }
    send(*later, answer);
  }
  void send(const Json& json) { answer({.body = text_of(json), .headers = {}}); }
  void fail(int status, std::string_view code, std::string_view message, std::string_view headers = {}) {
    Answer failed{.status = status, .body = {}, .headers = std::string(status == 401 ? kBearerChallenge : headers)};
    failed.content_type = net::append_error({status, code, message}, form_, failed.body);
    answer(std::move(failed));
  }

  void fail(const Error& error) {
    const service::Refusal refusal = service::refusal_of(error);
    fail(refusal.status, refusal.code, refusal.message);
  }

  void give(net::HttpReply& reply) {
    std::optional<Answer> ready;
    {
      const std::lock_guard guard(mutex_);
      if (!ready_) later_ = reply.later();
      ready = std::move(ready_);
    }
    if (ready) send(reply, *ready);
  }
  [[nodiscard]] net::ErrorForm error_form() const noexcept { return form_; }
  // Whether the client has closed the connection.
  [[nodiscard]] bool abandoned() const {
    const std::lock_guard guard(mutex_);
    return later_ != nullptr && later_->abandoned();
  }

 private:
  template <class Reply>
  void send(Reply& reply, const Answer& answer) const {
    const std::string headers = answer.headers + "X-Request-Id: " + request_id_ + "\r\n";
    net::HttpAnswer out;
    out.status = answer.status;
    out.content_type = answer.content_type;
    out.body = answer.body;
    out.headers = headers;
    reply.send(out);
  }

  const std::string request_id_;
  const net::ErrorForm form_;
  mutable std::mutex mutex_;
  std::optional<Answer> ready_;
  std::shared_ptr<net::LaterReply> later_;
};

// Runs the work on a thread of `background`; it answers by the handoff. At its bounds the answer is 503 with `busy` as
// the message; if the caller's token has ended meanwhile, it is 401. The work may use nothing of the call but what it
// has copied.
template <class Work>
void answer_in(base::Background& background, Call& call, std::string_view busy, Work work) {
  const auto handoff = std::make_shared<Handoff>(call);
  handoff->give(call.reply);
  const bool taken = background.run(
      [handoff, valid = call.service().access->validity_of(call.caller), work = std::move(work)] {
        try {
          if (valid && !valid()) {
            return handoff->fail(401, "unauthorized", "The token has expired or was revoked while the call waited");
          }
          work(*handoff);
        } catch (const std::exception& error) {
          handoff->fail(500, "internal", error.what());
        }
      },
      call.request.body.size());
  if (!taken) handoff->fail(503, "busy", busy, "Retry-After: 1\r\n");
}

// For work that waits for the disk. Agents have a thread and a queue of their own, so that theirs delays no operator.
template <class Work>
void read_in_background(Call& call, Work work) {
  Context& context = call.context;
  answer_in(is_agent(call.caller) ? *context.of_agents : *context.background, call,
            "too many wait for the disk already; ask again in a moment", std::move(work));
}

}  // namespace headgate::api
