// gRPC over libnghttp2, which keeps the streams, windows and header tables; this keeps the calls.
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "net/grpc_answers.h"
#include "net/grpc_text.h"
#include "net/h2_floods.h"

namespace headgate::net {
namespace {

constexpr std::size_t kMostSpare = 64;            // calls that are kept for the next
constexpr std::size_t kMostUnacknowledged = 256;  // pings and settings that we owe an answer
constexpr std::size_t kWeight = 24 << 10;         // of nghttp2's session, as far as strangers are counted by it

std::string_view text_of(const std::uint8_t* bytes, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(bytes), size};
}

// A callback whose exceptions stay out of nghttp2, which is written in C. `Session` notes that there was one.
template <class Session, auto kCallback>
struct Kept;
template <class Session, class... Args, int (*kCallback)(Args...)>
struct Kept<Session, kCallback> {
  static int call(Args... args) {
    try {
      return kCallback(args...);
    } catch (const std::bad_alloc&) {
      static_cast<Session*>(std::get<sizeof...(Args) - 1>(std::tie(args...)))->no_memory_ = true;
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
};

class GrpcSession final : public Session, private GrpcContext {
 public:
  GrpcSession(GrpcHandler& handler, const Peer& peer, const GrpcLimits& limits)
      : handler_(handler), peer_(peer), limits_(limits), floods_(limits) {
    if (nghttp2_session_server_new2(&h2_, callbacks(), this, options()) != 0) throw std::bad_alloc();
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits.max_header_bytes)},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}};
    nghttp2_submit_settings(h2_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  }
  ~GrpcSession() override { nghttp2_session_del(h2_); }

  void receive(std::string_view bytes, Nanos now) override {
    start(now);
    if (!bytes.empty()) heard_at_ = now;
    if (close) return;
    const ssize_t taken =
        nghttp2_session_mem_recv(h2_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    if (no_memory_) throw std::bad_alloc();
    if (taken == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
      close = true;  // not HTTP/2: nothing it would understand
      return;
    }
    flush();
    if (taken < 0) close = true;
  }

  void finish() override { close = true; }
  void overloaded() override {
    nghttp2_session_terminate_session(h2_, NGHTTP2_ENHANCE_YOUR_CALM);
    flush();
    close = true;
  }
  [[nodiscard]] std::size_t buffered() const noexcept override {
    return pending_ + (standing == Standing::kUnknown ? kWeight : 0);
  }
  void sent() override {
    if (paused) flush();
  }

  // Told first to open no more streams, then which was the last to be served; those that cross the first on its way
  // are served all the same.
  void drain() override {
    if (std::exchange(draining_, true)) return;
    for (GrpcStream& call : live_) {
      if (call.answer.stays) end_staying(call, GrpcStatus::kOk);
    }
    nghttp2_submit_shutdown_notice(h2_);
    nghttp2_submit_ping(h2_, NGHTTP2_FLAG_NONE, nullptr);
    flush();
  }

  void tick(Nanos now) override {
    start(now);
    if (close) return;
    if (draining_) end_draining();
    if (sign_in_is_overdue(now)) {
      nghttp2_session_terminate_session(h2_, NGHTTP2_NO_ERROR);
      flush();
      close = true;
      return;
    }
    for (auto each = live_.begin(); each != live_.end();) {
      GrpcStream& call = *each++;
      const bool late = now - call.begun >= limits_.request_within || is_late(call);
      if (late && !call.ended && !call.answered)
        refuse(call, GrpcStatus::kDeadlineExceeded, "the call did not end in time");
      if (call.later != 0 && is_late(call)) {
        call.later = 0;
        refuse(call, GrpcStatus::kDeadlineExceeded, "the deadline is over");
      }
      if (call.answer.stays && is_late(call)) end_staying(call, GrpcStatus::kDeadlineExceeded);
    }
    if (pinged_at_ > heard_at_) {
      if (now - pinged_at_ >= limits_.pong_within) close = true;
    } else if (now - std::max(heard_at_, pinged_at_) >= limits_.ping_every) {
      pinged_at_ = now;
      nghttp2_submit_ping(h2_, NGHTTP2_FLAG_NONE, nullptr);
    }
    flush();
  }

  // A connection with many calls is always in the middle of some; each has its own time (request_within).
  [[nodiscard]] bool midway() const noexcept override { return started_ && !greeted_; }

 private:
  template <class, auto>
  friend struct Kept;
  class Later;

  std::shared_ptr<GrpcLater> later() override;

  // The answer to a call that was put off. It may be gone, and its stream's number used no more.
  void answer_later(std::int32_t id, std::uint64_t number, GrpcAnswer& answer) {
    GrpcStream* const call = close ? nullptr : call_of(h2_, id);
    if (call == nullptr || call->later != number) return;
    call->later = 0;
    std::swap(call->answer, answer);
    submit(*call);
    flush();
  }

  static GrpcSession& self(void* user) noexcept { return *static_cast<GrpcSession*>(user); }

  static const nghttp2_option* options() {
    static const nghttp2_option* const kOptions = [] {
      nghttp2_option* made = nullptr;
      if (nghttp2_option_new(&made) != 0) throw std::bad_alloc();
      nghttp2_option_set_no_closed_streams(made, 1);
      nghttp2_option_set_max_outbound_ack(made, kMostUnacknowledged);
      return made;
    }();
    return kOptions;
  }

  static const nghttp2_session_callbacks* callbacks() {
    static const nghttp2_session_callbacks* const kCallbacks = [] {
      nghttp2_session_callbacks* made = nullptr;
      if (nghttp2_session_callbacks_new(&made) != 0) throw std::bad_alloc();
      nghttp2_session_callbacks_set_on_begin_frame_callback(made, on_begin_frame);
      nghttp2_session_callbacks_set_on_begin_headers_callback(made, Kept<GrpcSession, on_begin_headers>::call);
      nghttp2_session_callbacks_set_on_header_callback(made, Kept<GrpcSession, on_header>::call);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, Kept<GrpcSession, on_data>::call);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, Kept<GrpcSession, on_frame>::call);
      nghttp2_session_callbacks_set_on_frame_send_callback(made, Kept<GrpcSession, on_frame_sent>::call);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, on_stream_close);
      return made;
    }();
    return kCallbacks;
  }

  void start(Nanos now) noexcept {
    if (!started_) {
      began_ = heard_at_ = now;
      floods_.start(now);
    }
    started_ = true;
    now_ = now;
  }

  [[nodiscard]] bool sign_in_is_overdue(Nanos now) const noexcept {
    return limits_.sign_in > Nanos{0} && standing == Standing::kUnknown && peer_.certificate.empty() &&
           now - began_ >= limits_.sign_in;
  }

  // As much of what nghttp2 has to say as fits the backlog.
  void flush() {
    while (out.size() < limits_.max_backlog) {
      const std::uint8_t* bytes = nullptr;
      const ssize_t size = nghttp2_session_mem_send(h2_, &bytes);
      if (size < 0) close = true;
      if (size <= 0) break;
      out += text_of(bytes, static_cast<std::size_t>(size));
    }
    paused = out.size() > limits_.max_backlog / 4;
    if (nghttp2_session_want_read(h2_) == 0 && nghttp2_session_want_write(h2_) == 0) close = true;
  }

  void end_draining() {
    if (std::exchange(last_said_, true)) return;
    nghttp2_submit_goaway(h2_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h2_), NGHTTP2_NO_ERROR,
                          nullptr, 0);
  }

  void end_if_flooded() {
    if (floods_.flooded()) nghttp2_session_terminate_session(h2_, NGHTTP2_ENHANCE_YOUR_CALM);
  }
  void count_reset() {
    floods_.count_reset(now_);
    end_if_flooded();
  }

  // ---- what comes ----

  static int on_begin_frame(nghttp2_session* /*h2*/, const nghttp2_frame_hd* head, void* user) {
    switch (head->type) {
      case NGHTTP2_HEADERS: self(user).floods_.earn_by_stream(); return 0;
      case NGHTTP2_CONTINUATION:          // bounded by nghttp2
      case NGHTTP2_RST_STREAM: return 0;  // counted by themselves
      case NGHTTP2_DATA:
        if (head->length > 0 || (head->flags & NGHTTP2_FLAG_END_STREAM) != 0) return 0;
        break;
      default: break;
    }
    self(user).floods_.count_control_frame(self(user).now_);
    self(user).end_if_flooded();
    return 0;
  }

  static int on_begin_headers(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    GrpcSession& me = self(user);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    if (me.spare_.empty()) me.spare_.emplace_back();
    me.live_.splice(me.live_.begin(), me.spare_, me.spare_.begin());
    GrpcStream& call = me.live_.front();
    call.self = me.live_.begin();
    call.id = frame->hd.stream_id;
    call.begun = me.now_;
    nghttp2_session_set_stream_user_data(h2, call.id, &call);
    return 0;
  }

  static GrpcStream* call_of(nghttp2_session* h2, std::int32_t id) noexcept {
    return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(h2, id));
  }

  static int on_header(nghttp2_session* h2, const nghttp2_frame* frame, const std::uint8_t* name_bytes,
                       std::size_t name_size, const std::uint8_t* value_bytes, std::size_t value_size,
                       std::uint8_t /*flags*/, void* user) {
    GrpcStream* call = call_of(h2, frame->hd.stream_id);
    if (call == nullptr) return 0;
    const std::size_t most = self(user).limits_.max_header_bytes;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      call->take_header(text_of(name_bytes, name_size), text_of(value_bytes, value_size), most);
    } else {
      call->header_bytes += name_size + value_size;  // trailers are not read
    }
    // A byte may stand for a header of 4 kB, which costs to decode and to validate. Past twice the bound the connection
    // ends, since a refused stream would go on decoding.
    return call->header_bytes > 2 * most ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }

  static int on_data(nghttp2_session* h2, std::uint8_t /*flags*/, std::int32_t id, const std::uint8_t* bytes,
                     std::size_t size, void* user) {
    GrpcSession& me = self(user);
    GrpcStream* call = call_of(h2, id);
    if (call == nullptr || call->answered) return 0;
    const bool known = me.standing != Standing::kUnknown;
    if (call->message.size() + size > (known ? me.limits_.max_message : me.limits_.max_unsigned) + kGrpcPrefix) {
      me.refuse(*call, GrpcStatus::kResourceExhausted, "the message is too long");
    } else if (me.pending_ + size > (known ? me.limits_.max_pending : me.limits_.max_unsigned)) {
      me.refuse(*call, GrpcStatus::kResourceExhausted, "too many messages are incomplete");
    } else {
      call->message.append(text_of(bytes, size));
      me.pending_ += size;
    }
    return 0;
  }

  static int on_frame(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    GrpcSession& me = self(user);
    switch (frame->hd.type) {
      case NGHTTP2_SETTINGS: me.greeted_ = true; return 0;
      case NGHTTP2_RST_STREAM: me.count_reset(); return 0;
      case NGHTTP2_PING:
        if (me.draining_ && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) me.end_draining();
        return 0;
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: break;
      default: return 0;
    }
    GrpcStream* call = call_of(h2, frame->hd.stream_id);
    if (call == nullptr) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) call->ended = true;
    if (frame->hd.type == NGHTTP2_HEADERS && !call->answered) me.judge_head(*call);
    if (call->ended && !call->answered) me.answer(*call);
    return 0;
  }

  static int on_stream_close(nghttp2_session* h2, std::int32_t id, std::uint32_t /*error*/, void* user) {
    GrpcSession& me = self(user);
    GrpcStream* call = call_of(h2, id);
    if (call == nullptr) return 0;
    me.forget_message(*call);
    call->clear();
    if (me.spare_.size() < kMostSpare) {
      me.spare_.splice(me.spare_.begin(), me.live_, call->self);
    } else {
      me.live_.erase(call->self);
    }
    return 0;
  }

  static int on_frame_sent(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_DATA) self(user).floods_.earn_by_data();
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
      // Errors that a peer makes us answer with a reset cost as much as its own.
      if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR) self(user).count_reset();
      return 0;
    }
    const bool last = frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (!last) return 0;
    const GrpcStream* call = call_of(h2, frame->hd.stream_id);
    // Whatever it would still send is of no use.
    if (call != nullptr && !call->ended) nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_NO_ERROR);
    return 0;
  }

  // ---- what is answered ----

  [[nodiscard]] bool is_late(const GrpcStream& call) const noexcept {
    return call.timeout >= Nanos{0} && now_ - call.begun >= call.timeout;
  }

  void judge_head(GrpcStream& call) {
    if (!call.post) return answer_plain(call, "405");
    if (!is_grpc_content_type(call.value_of(call.content_type))) return answer_plain(call, "415");
    if (call.problem != nullptr) {
      refuse(call, call.too_large ? GrpcStatus::kResourceExhausted : GrpcStatus::kInternal, call.problem);
    } else if (is_late(call)) {
      refuse(call, GrpcStatus::kDeadlineExceeded, "the deadline is over");
    } else if (standing == Standing::kUnknown && !handler_.admits(asked_of(call), call.answer, standing)) {
      refuse(call, call.answer.status, call.answer.text);
    }
  }

  // The call without its message. Borrowed until the next.
  [[nodiscard]] GrpcCall asked_of(const GrpcStream& call) {
    metadata_.clear();
    for (const GrpcStream::Place& place : call.places) metadata_.push_back({call.name_of(place), call.value_of(place)});
    GrpcCall asked;
    asked.path = call.value_of(call.path);
    asked.metadata = metadata_;
    asked.peer = &peer_;
    asked.now = now_;
    return asked;
  }

  void answer(GrpcStream& call) {
    const std::string_view message = call.message;
    if (is_late(call)) return refuse(call, GrpcStatus::kDeadlineExceeded, "the deadline is over");
    if (message.size() < kGrpcPrefix)
      return refuse(call, GrpcStatus::kInternal, "the message has no prefix of five bytes");
    if (message[0] != 0) return refuse(call, GrpcStatus::kUnimplemented, "messages must not be compressed");
    std::size_t size = 0;
    for (std::size_t i = 1; i < kGrpcPrefix; ++i) size = size << 8 | static_cast<unsigned char>(message[i]);
    if (size > message.size() - kGrpcPrefix) return refuse(call, GrpcStatus::kInternal, "the message is cut off");
    if (size < message.size() - kGrpcPrefix)
      return refuse(call, GrpcStatus::kUnimplemented, "a call must have one message");

    GrpcCall asked = asked_of(call);
    asked.message = message.substr(kGrpcPrefix);
    asked.context = this;
    answering_ = &call;
    handler_.call(asked, call.answer);
    answering_ = nullptr;
    forget_message(call);
    if (call.later != 0) {
      call.answered = true;
    } else {
      submit(call);
    }
  }

  // Sends the answer that the call has got.
  void submit(GrpcStream& call) {
    if (call.answer.status != GrpcStatus::kOk) return refuse(call, call.answer.status, call.answer.text);
    if (draining_ && call.answer.stays) {
      call.answer.message.swap(call.answer.last);
      call.answer.stays = false;
    }

    call.answered = true;
    send_message(h2_, call);
  }

  // Says the last word to a call that has stayed open. A message that is still on its way is all that it gets.
  void end_staying(GrpcStream& call, GrpcStatus status) {
    call.answer.stays = false;
    call.end = status;
    if (status == GrpcStatus::kOk && call.sent == kGrpcPrefix + call.answer.message.size()) {
      call.answer.message.swap(call.answer.last);
      call.sent = 0;
    }
    nghttp2_session_resume_data(h2_, call.id);
  }

  // An answer without a message: one block of headers says it all.
  void refuse(GrpcStream& call, GrpcStatus status, std::string_view why) {
    call.answered = true;
    forget_message(call);
    send_status(h2_, call, status, why);
  }

  void answer_plain(GrpcStream& call, std::string_view status) {
    call.answered = true;
    forget_message(call);
    send_http_status(h2_, call, status);
  }

  void forget_message(GrpcStream& call) noexcept {
    pending_ -= call.message.size();
    call.message.clear();
  }

  GrpcStream* answering_ = nullptr;  // while the handler is asked
  std::uint64_t last_later_ = 0;
  GrpcHandler& handler_;
  const Peer peer_;
  const GrpcLimits limits_;
  nghttp2_session* h2_ = nullptr;
  std::list<GrpcStream> live_;   // at most max_concurrent_streams
  std::list<GrpcStream> spare_;  // at most kMostSpare
  std::vector<Header> metadata_;
  std::size_t pending_ = 0;  // bytes of messages that are kept
  bool started_ = false;
  bool greeted_ = false;  // the peer has sent its settings
  bool draining_ = false;
  bool last_said_ = false;
  bool no_memory_ = false;  // in a callback
  Nanos now_{0};
  Nanos began_{0};
  Nanos heard_at_{0};
  Nanos pinged_at_{-1};
  H2Floods floods_;
};

class GrpcSession::Later final : public GrpcLater {
 public:
  Later(std::shared_ptr<Link> link, std::int32_t id, std::uint64_t number) noexcept
      : link_(std::move(link)), id_(id), number_(number) {}
  ~Later() override {
    GrpcAnswer answer;
    answer.status = GrpcStatus::kUnavailable;
    answer.text = "the call was given up";
    send(std::move(answer));
  }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  void send(GrpcAnswer answer) override {
    if (std::exchange(sent_, true) || link_ == nullptr) return;
    auto shared = std::make_shared<GrpcAnswer>(std::move(answer));
    link_->post([shared = std::move(shared), id = id_, number = number_](Session& session) {
      if (auto* grpc = dynamic_cast<GrpcSession*>(&session)) grpc->answer_later(id, number, *shared);
    });
  }

 private:
  const std::shared_ptr<Link> link_;
  const std::int32_t id_;
  const std::uint64_t number_;
  bool sent_ = false;
};

std::shared_ptr<GrpcLater> GrpcSession::later() {
  answering_->later = ++last_later_;
  return std::make_shared<Later>(link, answering_->id, answering_->later);
}

}  // namespace

std::unique_ptr<Session> make_grpc_session(GrpcHandler& handler, const Peer& peer, const GrpcLimits& limits) {
  return std::make_unique<GrpcSession>(handler, peer, limits);
}

}  // namespace headgate::net
