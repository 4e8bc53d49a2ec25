#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "net/byte_buffer.h"
#include "net/http.h"
#include "net/http_error.h"
#include "net/http_parser.h"
#include "net/http_writer.h"
#include "net/spare.h"

namespace headgate::net {
namespace {

// No further request is answered while more than this waits to be sent.
constexpr std::size_t kMaxWaiting = 1 << 20;
// Parsers that hold more memory than this are not kept warm.
constexpr std::size_t kMaxWarm = 64 << 10;

// Hands `send` the answer that an error makes.
template <class Send>
void answer_error(const HttpError& error, ErrorForm form, Send send) {
  std::string body;
  HttpAnswer answer;
  answer.content_type = append_error(error, form, body);
  answer.status = error.status;
  answer.body = body;
  send(answer);
}

// An answer that outlives the call it was given in.
struct OwnedAnswer {
  explicit OwnedAnswer(const HttpAnswer& answer)
      : status(answer.status), content_type(answer.content_type), body(answer.body), headers(answer.headers) {}
  [[nodiscard]] HttpAnswer view() const {
    HttpAnswer answer;
    answer.status = status;
    answer.content_type = content_type;
    answer.body = body;
    answer.headers = headers;
    return answer;
  }
  int status;
  std::string content_type;
  std::string body;
  std::string headers;
};

class HttpSession final : public Session {
 public:
  HttpSession(HttpHandler& handler, const Peer& peer, const HttpLimits& limits)
      : handler_(handler), peer_(peer), limits_(limits) {
    idle_limit = limits.idle;
  }
  ~HttpSession() override { abandon(); }

  void receive(std::string_view bytes, Nanos now) override;
  void finish() override;
  void drain() override;
  void tick(Nanos now) override;
  void timed_out() override;
  void overloaded() override;
  [[nodiscard]] bool midway() const noexcept override { return parser_ != nullptr && !paused && !close; }
  [[nodiscard]] bool busy() const noexcept override { return asked_ != nullptr; }
  [[nodiscard]] std::size_t buffered() const noexcept override {
    return input_.capacity() + (parser_ ? parser_->weight() : 0);
  }

  // The answer to a request that was put off.
  void answer_later(const std::shared_ptr<std::atomic<bool>>& asked, const HttpAnswer& answer);

 private:
  class Reply;
  class Later;
  enum class Answered : std::uint8_t { kNo, kYes, kLater, kTakenOver };

  // Answers requests from `data` on, and returns how many bytes they were.
  std::size_t answer_all(std::string_view data);
  void answer_one();
  [[nodiscard]] bool admit_head();
  [[nodiscard]] HttpRequest request_at_hand();
  void refuse(const HttpError& refusal);
  void keep(std::string_view data, std::size_t used, bool own);
  void drop_input() noexcept;
  void put_away_parser() noexcept;
  void write(const HttpAnswer& answer);
  void abandon() noexcept {
    if (asked_) asked_->store(true, std::memory_order_relaxed);
  }
  // Whether the peer should have shown by now who it is.
  [[nodiscard]] bool sign_in_is_overdue() const noexcept {
    return limits_.sign_in > Nanos{0} && standing == Standing::kUnknown && peer_.certificate.empty() &&
           now_ - began_ >= limits_.sign_in;
  }
  void start(Nanos now) noexcept {
    if (!std::exchange(started_, true)) began_ = now;
    now_ = now;
  }
  [[nodiscard]] bool stopped() const noexcept { return close || successor != nullptr || asked_ != nullptr; }

  HttpHandler& handler_;
  const Peer peer_;
  const HttpLimits limits_;
  Nanos now_{0};
  Nanos began_{0};                            // of the connection
  ByteBuffer input_;                          // what has come and is not answered
  std::unique_ptr<HttpParser> parser_;        // while a request is being read
  std::shared_ptr<std::atomic<bool>> asked_;  // while an answer is to come from elsewhere; true: the client is gone
  std::unique_ptr<Session> next_;             // until the request is done with
  AnswerForm form_;                           // of the answer to the request at hand
  ErrorForm error_form_ = ErrorForm::kPlain;  // of a refusal: what the head asks for, once it is complete
  Answered answered_ = Answered::kNo;
  bool started_ = false;
  bool finishing_ = false;  // the peer sends no more
  bool draining_ = false;   // the server wants no more
};

class HttpSession::Later final : public LaterReply {
 public:
  Later(std::shared_ptr<Link> link, std::shared_ptr<std::atomic<bool>> asked, ErrorForm form) noexcept
      : link_(std::move(link)), asked_(std::move(asked)), form_(form) {}
  ~Later() override {
    if (sent_) return;
    answer_error({503, "unavailable", "the request was given up"}, form_,
                 [this](const HttpAnswer& answer) { send(answer); });
  }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  void send(const HttpAnswer& answer) override {
    if (std::exchange(sent_, true) || !link_) return;
    auto owned = std::make_shared<const OwnedAnswer>(answer);
    link_->post([owned = std::move(owned), asked = asked_](Session& session) {
      if (auto* http = dynamic_cast<HttpSession*>(&session)) http->answer_later(asked, owned->view());
    });
  }
  [[nodiscard]] bool abandoned() const noexcept override { return asked_->load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<std::atomic<bool>> asked_;
  const ErrorForm form_;
  bool sent_ = false;
};

class HttpSession::Reply final : public HttpReply {
 public:
  explicit Reply(HttpSession& session) noexcept : session_(session) {}

  void send(const HttpAnswer& answer) override {
    if (session_.answered_ != Answered::kNo) return;
    session_.answered_ = Answered::kYes;
    session_.write(answer);
  }
  std::shared_ptr<LaterReply> later() override {
    session_.answered_ = Answered::kLater;
    session_.asked_ = std::make_shared<std::atomic<bool>>(false);
    return std::make_shared<Later>(session_.link, session_.asked_, error_form_of(session_.parser_->request()));
  }
  void take_over(std::string_view head, std::unique_ptr<Session> successor) override {
    session_.answered_ = Answered::kTakenOver;
    session_.out += head;
    session_.next_ = std::move(successor);
  }

 private:
  HttpSession& session_;
};

void HttpSession::receive(std::string_view bytes, Nanos now) {
  if (close || successor) return;
  if (asked_) {
    input_.append(bytes);  // the driver stops reading while we are paused, so this is one read's worth
    return;
  }
  start(now);
  paused = false;
  const bool own = !input_.empty();
  if (own) input_.append(bytes);
  const std::string_view data = own ? input_.view() : bytes;
  const std::size_t used = answer_all(data);
  keep(data, used, own);
  if (finishing_ && !paused) close = true;
}

std::size_t HttpSession::answer_all(std::string_view data) {
  std::size_t used = 0;
  while (used < data.size()) {
    if (out.size() > kMaxWaiting) {
      paused = true;
      break;
    }
    if (!parser_) {
      // Empty lines before a request are to be overlooked (RFC 9112, 2.2).
      if (data[used] == '\r') {
        if (used + 1 == data.size()) break;
        if (data[used + 1] == '\n') {
          used += 2;
          continue;
        }
      }
      parser_ = Spare<HttpParser>::take();
      parser_->begin();
      error_form_ = ErrorForm::kPlain;
    }
    const HttpParser::Step step = parser_->parse(data.substr(used), limits_);
    if (step == HttpParser::Step::kMore) {
      if (parser_->has_new_head() && !admit_head()) break;
      if (parser_->wants_continue()) out += "HTTP/1.1 100 Continue\r\n\r\n";
      break;
    }
    if (step == HttpParser::Step::kRefused) {
      if (parser_->has_head()) error_form_ = error_form_of(parser_->request());
      refuse(parser_->refusal());
      break;
    }
    used += parser_->size();
    answer_one();
    put_away_parser();
    if (next_) {
      unread.assign(data.substr(used));
      successor = std::move(next_);
    }
    if (stopped()) break;
  }
  return used;
}

HttpRequest HttpSession::request_at_hand() {
  HttpRequest request = parser_->request();
  request.peer = &peer_;
  request.now = now_;
  form_.head_only = request.method == Method::kHead;
  answered_ = Answered::kNo;
  return request;
}

// The handler may refuse a request by its head alone, so that the body of a caller without the right to send it is not
// kept.
bool HttpSession::admit_head() {
  const HttpRequest head = request_at_hand();
  error_form_ = error_form_of(head);
  form_.close = true;
  form_.keep_alive = false;
  Reply reply(*this);
  const bool admitted = handler_.admits(head, reply);
  assert(answered_ != Answered::kLater && answered_ != Answered::kTakenOver);
  standing = std::max(standing, reply.standing);
  if (!admitted) close = true;
  return admitted;
}

void HttpSession::answer_one() {
  const HttpRequest request = request_at_hand();
  const bool keep_alive = parser_->keep_alive() && !draining_;
  form_.close = !keep_alive;
  form_.keep_alive = keep_alive && !parser_->is_1_1();
  Reply reply(*this);
  handler_.handle(request, reply);
  standing = std::max(standing, reply.standing);
  switch (answered_) {
    case Answered::kNo:
      answer_error({500, "internal", "the request was not answered"}, error_form_of(request),
                   [this](const HttpAnswer& answer) { write(answer); });
      break;
    case Answered::kLater: paused = true; return;
    case Answered::kTakenOver: return;
    case Answered::kYes: break;
  }
  if (sign_in_is_overdue()) close = true;
}

void HttpSession::tick(Nanos now) {
  start(now);
  if (sign_in_is_overdue() && !midway() && asked_ == nullptr && !successor) close = true;
}

void HttpSession::write(const HttpAnswer& answer) {
  write_answer(answer, form_, out);
  if (form_.close) close = true;
}

void HttpSession::refuse(const HttpError& refusal) {
  form_ = {};
  form_.close = true;
  answer_error(refusal, error_form_, [this](const HttpAnswer& answer) { write(answer); });
}

// Keeps what was not used; while nothing is, there is no buffer.
void HttpSession::keep(std::string_view data, std::size_t used, bool own) {
  if (close || successor || used == data.size()) {
    drop_input();
    return;
  }
  if (own) {
    input_.erase(0, used);
  } else {
    input_.append(data.substr(used));
  }
  if (parser_) {
    const HttpParser::Span span = parser_->droppable();
    input_.erase(span.at, span.count);
  }
}

void HttpSession::drop_input() noexcept {
  input_.release();
  if (parser_) put_away_parser();
}

void HttpSession::put_away_parser() noexcept {
  if (parser_->weight() <= kMaxWarm) {
    Spare<HttpParser>::give_back(std::move(parser_));
  } else {
    parser_.reset();
  }
}

void HttpSession::answer_later(const std::shared_ptr<std::atomic<bool>>& asked, const HttpAnswer& answer) {
  if (asked != asked_ || close) return;
  asked_.reset();
  if (draining_) form_.close = true;
  if (form_.close) form_.keep_alive = false;
  write(answer);
  // What has come meanwhile is answered as soon as the driver has sent this.
  paused = !close && !input_.empty();
  if (sign_in_is_overdue()) close = true;
  if (close) drop_input();
  if (finishing_ && !paused) close = true;
}

void HttpSession::finish() {
  finishing_ = true;
  abandon();
  if (!paused) close = true;
}

void HttpSession::drain() {
  draining_ = true;
  if (!paused && !midway()) close = true;
}

void HttpSession::timed_out() {
  if (midway()) refuse({408, "request_timeout", "the request took too long to arrive"});
  close = true;
}

void HttpSession::overloaded() {
  if (!asked_) refuse({503, "overloaded", "the server holds too many unfinished requests; try again later"});
  close = true;
}

}  // namespace

std::unique_ptr<Session> make_http_session(HttpHandler& handler, const Peer& peer, const HttpLimits& limits) {
  return std::make_unique<HttpSession>(handler, peer, limits);
}

}  // namespace headgate::net
