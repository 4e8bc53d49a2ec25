// The frames are our own and not a library's: see docs/internals/decisions.md.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "net/byte_buffer.h"
#include "net/websocket.h"
#include "net/websocket_frame.h"

namespace headgate::net {
namespace {

constexpr std::size_t kMostReason = 123;    // a control frame's 125 bytes without the code
constexpr std::size_t kKeptRoom = 1 << 10;  // of the buffer, between messages

class WebSocketSession final : public Session, public WebSocket {
 public:
  WebSocketSession(std::unique_ptr<WebSocketHandler> handler, const WebSocketLimits& limits)
      : handler_(std::move(handler)), limits_(limits) {}
  ~WebSocketSession() override { tell_closed(); }

  void receive(std::string_view bytes, Nanos now) override {
    start(now);
    if (!bytes.empty()) heard_at_ = now;
    if (unread_.empty()) {
      take_frames(bytes);
      unread_.append(bytes);
    } else {
      unread_.append(bytes);
      go_on();
    }
    settle();
  }

  void finish() override {
    Session::close = true;
    tell_closed();
  }

  void drain() override {
    draining_ = true;
    settle();
  }

  void sent() override {
    go_on();
    settle();
  }

  void overloaded() override {
    close(CloseCode::kTryLater, "the server holds too many unfinished messages");
    Session::close = true;
  }
  [[nodiscard]] std::size_t buffered() const noexcept override { return message_.capacity() + unread_.capacity(); }

  void tick(Nanos now) override {
    start(now);
    if (limits_.sign_in > Nanos{0} && standing == Standing::kUnknown && now - opened_at_ >= limits_.sign_in) {
      close(CloseCode::kPolicy, "the first message must identify the agent, and did not come in time");
    }
    if (!close_sent_) handler_->tick(*this);
    if (close_sent_) {
      if (now - close_sent_at_ >= limits_.close_within) Session::close = true;
    } else if (pinged_at_ > heard_at_) {
      if (now - pinged_at_ >= limits_.pong_within) finish();
    } else if (now - std::max(heard_at_, pinged_at_) >= limits_.ping_every) {
      pinged_at_ = now;
      send(Opcode::kPing, {});
    }
    settle();
  }

  [[nodiscard]] bool midway() const noexcept override { return head_.begun() || in_message_; }
  [[nodiscard]] bool busy() const noexcept override { return handler_->busy(); }

  void send_text(std::string_view message) override {
    send(Opcode::kText, message);
    settle();
  }

  void close(int code, std::string_view reason) override {
    if (close_sent_) return;
    const std::string text = base::shortened(reason, kMostReason - 3);
    std::string payload{static_cast<char>(code >> 8), static_cast<char>(code & 0xFF)};
    payload += text;
    send_close(payload);
  }

  [[nodiscard]] const std::shared_ptr<Link>& link() const noexcept override { return Session::link; }
  [[nodiscard]] std::size_t backlog() const noexcept override { return out.size(); }
  [[nodiscard]] Nanos now() const noexcept override { return now_; }
  void set_standing(Standing is) noexcept override { standing = is; }

 private:
  // Takes frames from the front of `bytes`, until all of them are taken, a good part of the backlog is to be
  // sent, or many answers are outstanding.
  void take_frames(std::string_view& bytes) {
    while (!bytes.empty() && !Session::close && !is_full()) {
      if (!in_payload_) {
        if (!head_.take(bytes)) break;
        begin_frame();
      } else {
        take_payload(bytes);
      }
      // A frame without payload is complete with its head.
      if (in_payload_ && taken_ == head_.length() && !Session::close) end_frame();
    }
    if (Session::close) bytes = {};
  }

  // Takes what was left while is_full().
  void go_on() {
    if (unread_.empty()) return;
    std::string_view bytes = unread_.view();
    take_frames(bytes);
    if (bytes.empty()) {
      unread_.release();
    } else {
      unread_.erase(0, unread_.size() - bytes.size());
    }
  }

  [[nodiscard]] bool is_full() const noexcept { return out.size() > limits_.max_backlog / 4 || handler_->full(); }
  [[nodiscard]] std::size_t max_message() const noexcept {
    return standing == Standing::kUnknown ? std::min(limits_.max_unsigned, limits_.max_message) : limits_.max_message;
  }

  void start(Nanos now) {
    now_ = now;
    if (opened_) return;
    opened_ = true;
    heard_at_ = opened_at_ = now;
    handler_->opened(*this);
  }

  // What follows from all that was received and sent.
  void settle() {
    paused = is_full() || !unread_.empty();
    if (draining_ && !close_sent_ && !handler_->busy()) close(CloseCode::kGoingAway, "the server is going away");
    if (!in_message_ && message_.capacity() > kKeptRoom) std::string().swap(message_);
  }

  void begin_frame() {
    in_payload_ = true;
    skipped_ = false;
    taken_ = 0;
    const Opcode opcode = head_.opcode();
    if (const char* problem = head_.problem()) return fail(CloseCode::kProtocolError, problem);
    if (is_control(opcode)) {
      control_.clear();
      return;
    }
    if (close_sent_) {
      skipped_ = true;
      return;
    }
    if (opcode == Opcode::kBinary) return fail(CloseCode::kUnacceptable, "messages must be text");
    if ((opcode == Opcode::kContinuation) != in_message_) {
      return fail(CloseCode::kProtocolError,
                  in_message_ ? "a message must end before the next begins" : "there is no message to continue");
    }
    if (head_.length() > max_message() - std::min(max_message(), message_.size()))
      return fail(CloseCode::kTooBig, "the message is too long");
    in_message_ = true;
    message_.reserve(message_.size() + static_cast<std::size_t>(head_.length()) + kSlack);
  }

  void take_payload(std::string_view& bytes) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), head_.length() - taken_));
    if (!skipped_) {
      head_.unmask(bytes.substr(0, count), static_cast<std::size_t>(taken_),
                   is_control(head_.opcode()) ? control_ : message_);
    }
    taken_ += count;
    bytes.remove_prefix(count);
  }

  void end_frame() {
    in_payload_ = false;
    const bool fin = head_.fin();
    const Opcode opcode = head_.opcode();
    head_.clear();
    if (skipped_) return;
    switch (opcode) {
      case Opcode::kPing: send(Opcode::kPong, control_); return;
      case Opcode::kPong: return;
      case Opcode::kClose: end_close(); return;
      default: break;
    }
    if (!fin) return;
    if (base::is_utf8(message_)) {
      handler_->message(*this, message_);
    } else {
      fail(CloseCode::kNotUtf8, "the message is not UTF-8");
    }
    in_message_ = false;
    message_.clear();
  }

  // The peer's close: answered with the same, or with what is wrong with it.
  void end_close() {
    if (control_.size() == 1) {
      fail(CloseCode::kProtocolError, "a close frame must have a code of two bytes or nothing");
    } else if (!control_.empty()) {
      const int code = static_cast<unsigned char>(control_[0]) << 8 | static_cast<unsigned char>(control_[1]);
      if (!may_be_sent(code)) {
        fail(CloseCode::kProtocolError, "no peer may send that code");
      } else if (!base::is_utf8(std::string_view(control_).substr(2))) {
        fail(CloseCode::kNotUtf8, "the reason is not UTF-8");
      }
    }
    if (!close_sent_) send_close(std::string_view(control_).substr(0, 2));
    Session::close = true;
  }

  // Tells the peer why, and from then on only listens for its close frame. What cannot even be told apart into frames
  // any more ends at once.
  void fail(int code, std::string_view reason) {
    if (close_sent_) {
      Session::close = true;
      return;
    }
    close(code, reason);
    skipped_ = true;
    in_message_ = false;
    message_.clear();
  }

  void send(Opcode opcode, std::string_view payload) {
    if (close_sent_ || Session::close) return;
    if (out.size() + frame_size(payload.size()) > limits_.max_backlog) {
      // Dropped. The peer may never read this, so nothing is waited for; the driver gives up on it soon.
      close(CloseCode::kPolicy, "too slow in reading");
      Session::close = true;
      return;
    }
    append_frame(opcode, payload, out);
  }

  void send_close(std::string_view payload) {
    append_frame(Opcode::kClose, payload, out);
    close_sent_ = true;
    close_sent_at_ = now_;
    tell_closed();
  }

  void tell_closed() noexcept {
    if (!std::exchange(told_closed_, true)) handler_->closed();
  }

  std::unique_ptr<WebSocketHandler> handler_;
  WebSocketLimits limits_;
  FrameHead head_;
  std::uint64_t taken_ = 0;  // of the frame's payload
  bool in_payload_ = false;  // the head is complete, the payload is not
  bool skipped_ = false;     // the payload is discarded
  bool in_message_ = false;  // begun and not ended
  bool opened_ = false;
  bool close_sent_ = false;
  bool told_closed_ = false;
  bool draining_ = false;
  std::string message_;  // at most max_message
  std::string control_;  // at most 125 bytes
  ByteBuffer unread_;    // of one read, while is_full()
  Nanos now_{0};
  Nanos opened_at_{0};
  Nanos heard_at_{0};
  Nanos pinged_at_{-1};
  Nanos close_sent_at_{0};
};

}  // namespace

std::unique_ptr<Session> make_websocket_session(std::unique_ptr<WebSocketHandler> handler,
                                                const WebSocketLimits& limits) {
  return std::make_unique<WebSocketSession>(std::move(handler), limits);
}

WebSocket* as_websocket(Session& session) noexcept { return dynamic_cast<WebSocketSession*>(&session); }

}  // namespace headgate::net
