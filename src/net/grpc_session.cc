// gRPC over libnghttp2, which keeps the streams, windows and header tables; this keeps the calls.
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "net/grpc.h"
#include "net/grpc_text.h"

namespace headgate::net {
namespace {

constexpr std::size_t kMostSpareCalls = 64;       // kept for the next
constexpr std::size_t kKeptCapacity = 4 << 10;    // of each of their buffers
constexpr std::size_t kHeaderOverhead = 32;       // of a header, as RFC 9113 counts them
constexpr std::size_t kMostHeaders = 100;         // of one call
constexpr std::size_t kMostUnacknowledged = 256;  // pings and settings that we owe an answer
constexpr std::size_t kWeight = 24 << 10;         // of nghttp2's session, as far as strangers are counted by it
// Frames that ask for nothing (PRIORITY, WINDOW_UPDATE, PING, SETTINGS, empty DATA) are earned by those
// that do, as Envoy has it.
constexpr double kEarnedByStream = 100;
constexpr double kEarnedByData = 10;  // by each DATA frame that we send

// A name or value that outlives the session, so that nghttp2 need not copy it.
nghttp2_nv fixed(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

nghttp2_nv copied_value(std::string_view name, std::string_view value) noexcept {
  nghttp2_nv pair = fixed(name, value);
  pair.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
  return pair;
}

constexpr std::string_view kStatus = ":status";
constexpr std::string_view kContentType = "content-type";
constexpr std::string_view kGrpcStatus = "grpc-status";
constexpr std::string_view kGrpcMessage = "grpc-message";
constexpr std::string_view kGrpc = "application/grpc";

std::string_view text_of(const std::uint8_t* bytes, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(bytes), size};
}

// One stream.
struct Call {
  struct Place {
    std::uint32_t name = 0;
    std::uint32_t name_size = 0;
    std::uint32_t value_size = 0;
  };

  std::int32_t id = 0;
  std::string text;  // of all headers, one after the other
  std::vector<Place> places;
  std::size_t header_bytes = 0;
  Place path;
  Place content_type;
  bool post = false;
  bool ended = false;       // all of it has come
  bool answered = false;    // or refused: what still comes is not kept
  std::uint64_t later = 0;  // not 0: its answer comes from elsewhere, under this number
  Nanos begun{0};
  Nanos timeout{-1};
  const char* problem = nullptr;  // of its head
  std::string message;            // with its prefix
  GrpcAnswer answer;
  std::size_t sent = 0;  // of the answer, prefix included
  GrpcStatus end = GrpcStatus::kOk;
  std::list<Call>::iterator self;

  [[nodiscard]] std::string_view name_of(const Place& place) const noexcept {
    return std::string_view(text).substr(place.name, place.name_size);
  }
  [[nodiscard]] std::string_view value_of(const Place& place) const noexcept {
    return std::string_view(text).substr(place.name + place.name_size, place.value_size);
  }

  void clear() {
    const auto forget = [](std::string& buffer) {
      buffer.clear();
      if (buffer.capacity() > kKeptCapacity) std::string().swap(buffer);
    };
    forget(text);
    forget(message);
    forget(answer.text);
    forget(answer.message);
    forget(answer.last);
    answer.status = end = GrpcStatus::kOk;
    answer.stays = false;
    places.clear();
    header_bytes = sent = 0;
    path = content_type = {};
    post = ended = answered = false;
    later = 0;
    timeout = Nanos{-1};
    problem = nullptr;
  }
};

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
      : handler_(handler),
        peer_(peer),
        limits_(limits),
        resets_left_(limits.max_resets_per_second),
        frames_left_(limits.max_control_frames) {
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
    for (Call& call : live_) {
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
      Call& call = *each++;
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
    Call* const call = close ? nullptr : call_of(h2_, id);
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
    if (!started_) began_ = heard_at_ = refilled_at_ = earned_at_ = now;
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

  // Streams that are made only to be reset cost us work and their peer none.
  void count_reset() {
    const double since = std::chrono::duration<double>(now_ - refilled_at_).count();
    refilled_at_ = now_;
    const double most = limits_.max_resets_per_second;
    resets_left_ = std::min(most, resets_left_ + since * most) - 1;
    if (resets_left_ < 0) nghttp2_session_terminate_session(h2_, NGHTTP2_ENHANCE_YOUR_CALM);
  }

  void earn(double frames) noexcept {
    frames_left_ = std::min(frames_left_ + frames, kEarnedByStream * limits_.max_control_frames);
  }

  // Whatever asks for nothing is spent from what was earned.
  void count_control_frame() {
    const double since = std::chrono::duration<double>(now_ - earned_at_).count();
    earned_at_ = now_;
    if (frames_left_ < limits_.max_control_frames) {
      frames_left_ = std::min<double>(limits_.max_control_frames, frames_left_ + since * kEarnedByStream);
    }
    if (--frames_left_ < 0) nghttp2_session_terminate_session(h2_, NGHTTP2_ENHANCE_YOUR_CALM);
  }

  // ---- what comes ----

  static int on_begin_frame(nghttp2_session* /*h2*/, const nghttp2_frame_hd* head, void* user) {
    switch (head->type) {
      case NGHTTP2_HEADERS: self(user).earn(kEarnedByStream); return 0;
      case NGHTTP2_CONTINUATION:          // bounded by nghttp2
      case NGHTTP2_RST_STREAM: return 0;  // counted by themselves
      case NGHTTP2_DATA:
        if (head->length > 0 || (head->flags & NGHTTP2_FLAG_END_STREAM) != 0) return 0;
        break;
      default: break;
    }
    self(user).count_control_frame();
    return 0;
  }

  static int on_begin_headers(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    GrpcSession& me = self(user);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    if (me.spare_.empty()) me.spare_.emplace_back();
    me.live_.splice(me.live_.begin(), me.spare_, me.spare_.begin());
    Call& call = me.live_.front();
    call.self = me.live_.begin();
    call.id = frame->hd.stream_id;
    call.begun = me.now_;
    nghttp2_session_set_stream_user_data(h2, call.id, &call);
    return 0;
  }

  static Call* call_of(nghttp2_session* h2, std::int32_t id) noexcept {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(h2, id));
  }

  static int on_header(nghttp2_session* h2, const nghttp2_frame* frame, const std::uint8_t* name_bytes,
                       std::size_t name_size, const std::uint8_t* value_bytes, std::size_t value_size,
                       std::uint8_t /*flags*/, void* user) {
    Call* call = call_of(h2, frame->hd.stream_id);
    if (call == nullptr || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;  // trailers tell us nothing
    const std::string_view name = text_of(name_bytes, name_size);
    const std::string_view value = text_of(value_bytes, value_size);
    call->header_bytes += name_size + value_size + kHeaderOverhead;
    if (call->header_bytes > self(user).limits_.max_header_bytes || call->places.size() >= kMostHeaders) {
      call->problem = "the headers are too large";
      return 0;
    }
    if (name == ":method") {
      call->post = value == "POST";
      return 0;
    }
    if (name == "grpc-timeout") {
      const std::optional<Nanos> timeout = parse_grpc_timeout(value);
      if (!timeout) call->problem = "grpc-timeout must be at most eight digits and one of H, M, S, m, u and n";
      call->timeout = timeout.value_or(Nanos{-1});
    }
    const Call::Place place{static_cast<std::uint32_t>(call->text.size()), static_cast<std::uint32_t>(name_size),
                            static_cast<std::uint32_t>(value_size)};
    call->text.append(name).append(value);
    if (name == ":path") {
      call->path = place;
    } else if (name == kContentType) {
      call->content_type = place;
    }
    if (name.front() != ':') call->places.push_back(place);
    return 0;
  }

  static int on_data(nghttp2_session* h2, std::uint8_t /*flags*/, std::int32_t id, const std::uint8_t* bytes,
                     std::size_t size, void* user) {
    GrpcSession& me = self(user);
    Call* call = call_of(h2, id);
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
    Call* call = call_of(h2, frame->hd.stream_id);
    if (call == nullptr) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) call->ended = true;
    if (frame->hd.type == NGHTTP2_HEADERS && !call->answered) me.judge_head(*call);
    if (call->ended && !call->answered) me.answer(*call);
    return 0;
  }

  static int on_stream_close(nghttp2_session* h2, std::int32_t id, std::uint32_t /*error*/, void* user) {
    GrpcSession& me = self(user);
    Call* call = call_of(h2, id);
    if (call == nullptr) return 0;
    me.forget_message(*call);
    call->clear();
    if (me.spare_.size() < kMostSpareCalls) {
      me.spare_.splice(me.spare_.begin(), me.live_, call->self);
    } else {
      me.live_.erase(call->self);
    }
    return 0;
  }

  static int on_frame_sent(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_DATA) self(user).earn(kEarnedByData);
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
      // Errors that a peer makes us answer with a reset cost as much as its own.
      if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR) self(user).count_reset();
      return 0;
    }
    const bool last = frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (!last) return 0;
    const Call* call = call_of(h2, frame->hd.stream_id);
    // Whatever it would still send is of no use.
    if (call != nullptr && !call->ended) nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_NO_ERROR);
    return 0;
  }

  // ---- what is answered ----

  [[nodiscard]] bool is_late(const Call& call) const noexcept {
    return call.timeout >= Nanos{0} && now_ - call.begun >= call.timeout;
  }

  void judge_head(Call& call) {
    if (!call.post) return answer_plain(call, "405");
    if (!is_grpc_content_type(call.value_of(call.content_type))) return answer_plain(call, "415");
    if (call.problem != nullptr) {
      const bool large = call.header_bytes > limits_.max_header_bytes || call.places.size() >= kMostHeaders;
      refuse(call, large ? GrpcStatus::kResourceExhausted : GrpcStatus::kInternal, call.problem);
    } else if (is_late(call)) {
      refuse(call, GrpcStatus::kDeadlineExceeded, "the deadline is over");
    } else if (standing == Standing::kUnknown && !handler_.admits(asked_of(call), call.answer, standing)) {
      refuse(call, call.answer.status, call.answer.text);
    }
  }

  // The call without its message. Borrowed until the next.
  [[nodiscard]] GrpcCall asked_of(const Call& call) {
    metadata_.clear();
    for (const Call::Place& place : call.places) metadata_.push_back({call.name_of(place), call.value_of(place)});
    GrpcCall asked;
    asked.path = call.value_of(call.path);
    asked.metadata = metadata_;
    asked.peer = &peer_;
    asked.now = now_;
    return asked;
  }

  void answer(Call& call) {
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
  void submit(Call& call) {
    if (call.answer.status != GrpcStatus::kOk) return refuse(call, call.answer.status, call.answer.text);
    if (draining_ && call.answer.stays) {
      call.answer.message.swap(call.answer.last);
      call.answer.stays = false;
    }

    call.answered = true;
    static const std::array<nghttp2_nv, 2> kHead{fixed(kStatus, "200"), fixed(kContentType, kGrpc)};
    nghttp2_data_provider provider;
    provider.source.ptr = &call;
    provider.read_callback = read_answer;
    nghttp2_submit_response(h2_, call.id, kHead.data(), kHead.size(), &provider);
  }

  static ssize_t read_answer(nghttp2_session* h2, std::int32_t id, std::uint8_t* buffer, std::size_t size,
                             std::uint32_t* flags, nghttp2_data_source* source, void* /*user*/) {
    Call& call = *static_cast<Call*>(source->ptr);
    const std::string& message = call.answer.message;
    std::size_t written = 0;
    if (call.sent < kGrpcPrefix) {
      const std::array<char, kGrpcPrefix> prefix = grpc_prefix(static_cast<std::uint32_t>(message.size()));
      written = std::min(size, kGrpcPrefix - call.sent);
      std::memcpy(buffer, prefix.data() + call.sent, written);
      call.sent += written;
    }
    if (call.sent >= kGrpcPrefix) {
      const std::size_t at = call.sent - kGrpcPrefix;
      const std::size_t part = std::min(size - written, message.size() - at);
      std::copy_n(message.data() + at, part, buffer + written);
      written += part;
      call.sent += part;
    }
    const bool all = call.sent == kGrpcPrefix + message.size();
    if (all && call.answer.stays && written == 0) return NGHTTP2_ERR_DEFERRED;
    if (all && call.answer.stays) return static_cast<ssize_t>(written);
    if (all) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      static const nghttp2_nv kDone = fixed(kGrpcStatus, "0");
      static const nghttp2_nv kLate = fixed(kGrpcStatus, "4");
      nghttp2_submit_trailer(h2, id, call.end == GrpcStatus::kOk ? &kDone : &kLate, 1);
    }
    return static_cast<ssize_t>(written);
  }

  // Says the last word to a call that has stayed open. A message that is still on its way is all that it gets.
  void end_staying(Call& call, GrpcStatus status) {
    call.answer.stays = false;
    call.end = status;
    if (status == GrpcStatus::kOk && call.sent == kGrpcPrefix + call.answer.message.size()) {
      call.answer.message.swap(call.answer.last);
      call.sent = 0;
    }
    nghttp2_session_resume_data(h2_, call.id);
  }

  // An answer without a message: one block of headers says it all.
  void refuse(Call& call, GrpcStatus status, std::string_view why) {
    call.answered = true;
    forget_message(call);
    const std::string number = std::to_string(static_cast<int>(status));
    const std::string text = percent_encoded(why);
    const std::array<nghttp2_nv, 4> head{fixed(kStatus, "200"), fixed(kContentType, kGrpc),
                                         copied_value(kGrpcStatus, number), copied_value(kGrpcMessage, text)};
    nghttp2_submit_response(h2_, call.id, head.data(), head.size(), nullptr);
  }

  void answer_plain(Call& call, std::string_view status) {
    call.answered = true;
    forget_message(call);
    const nghttp2_nv head = copied_value(kStatus, status);
    nghttp2_submit_response(h2_, call.id, &head, 1, nullptr);
  }

  void forget_message(Call& call) noexcept {
    pending_ -= call.message.size();
    call.message.clear();
  }

  Call* answering_ = nullptr;  // while the handler is asked
  std::uint64_t last_later_ = 0;
  GrpcHandler& handler_;
  const Peer peer_;
  const GrpcLimits limits_;
  nghttp2_session* h2_ = nullptr;
  std::list<Call> live_;   // at most max_concurrent_streams
  std::list<Call> spare_;  // at most kMostSpareCalls
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
  Nanos refilled_at_{0};
  Nanos earned_at_{0};
  double resets_left_;
  double frames_left_;
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
