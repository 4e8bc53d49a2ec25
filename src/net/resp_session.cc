#include <atomic>
#include <utility>

#include "net/byte_buffer.h"
#include "net/resp.h"
#include "net/resp_parser.h"
#include "net/spare.h"

namespace headgate::net {
namespace {

// No further command is answered while more than this waits to be sent.
constexpr std::size_t kMaxUnsent = 1 << 20;

bool same_word(std::string_view text, std::string_view lower_case) noexcept {
  if (text.size() != lower_case.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != lower_case[i]) return false;
  }
  return true;
}

class RespSession final : public Session, private RespContext {
 public:
  RespSession(std::unique_ptr<RespCommands> commands, const RespLimits& limits)
      : commands_(std::move(commands)), limits_(limits) {
    idle_limit = limits.idle;
  }
  ~RespSession() override { abandon(); }

  void receive(std::string_view bytes, Nanos now) override;
  void finish() override;
  void drain() override;
  [[nodiscard]] bool midway() const noexcept override { return parser_ != nullptr && !paused && !close; }
  [[nodiscard]] bool busy() const noexcept override { return asked_ != nullptr; }

  // The answer to a command that was put off.
  void answer_later(const std::shared_ptr<std::atomic<bool>>& asked, std::string_view text, int version);

 private:
  class Later;

  std::shared_ptr<RespLater> later() override;
  void quit() override { close = true; }
  [[nodiscard]] Nanos now() const noexcept override { return now_; }

  std::size_t answer_all(std::string_view data);
  void drop_input() noexcept {
    input_.release();
    if (parser_) Spare<RespParser>::give_back(std::move(parser_));
  }
  void abandon() noexcept {
    if (asked_) asked_->store(true, std::memory_order_relaxed);
  }

  const std::unique_ptr<RespCommands> commands_;
  const RespLimits limits_;
  Nanos now_{0};
  ByteBuffer input_;                          // what has come and is not answered
  std::unique_ptr<RespParser> parser_;        // while a command is being read
  std::shared_ptr<std::atomic<bool>> asked_;  // while an answer is to come from elsewhere; true: nobody waits for it
  int version_ = 2;
  bool finishing_ = false;  // the peer sends no more
  bool draining_ = false;   // the server wants no more
};

class RespSession::Later final : public RespLater {
 public:
  Later(std::shared_ptr<Link> link, std::shared_ptr<std::atomic<bool>> asked, int version) noexcept
      : link_(std::move(link)), asked_(std::move(asked)), version_(version) {}
  ~Later() override {
    send([](RespWriter& reply) { reply.error("ERR the command was given up"); });
  }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  void send(const std::function<void(RespWriter&)>& write) override {
    if (std::exchange(sent_, true) || !link_) return;
    std::string text;
    RespWriter writer(text, version_);
    write(writer);
    link_->post([text = std::move(text), asked = asked_, version = writer.version()](Session& session) {
      if (auto* resp = dynamic_cast<RespSession*>(&session)) resp->answer_later(asked, text, version);
    });
  }
  [[nodiscard]] bool abandoned() const noexcept override { return asked_->load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<std::atomic<bool>> asked_;
  const int version_;
  bool sent_ = false;
};

std::shared_ptr<RespLater> RespSession::later() {
  asked_ = std::make_shared<std::atomic<bool>>(false);
  return std::make_shared<Later>(link, asked_, version_);
}

void RespSession::receive(std::string_view bytes, Nanos now) {
  if (close) return;
  if (asked_) {
    input_.append(bytes);  // the driver stops reading while we are paused, so this is one read's worth
    return;
  }
  now_ = now;
  paused = false;
  const bool own = !input_.empty();
  if (own) input_.append(bytes);
  const std::string_view data = own ? input_.view() : bytes;
  const std::size_t used = answer_all(data);
  if (close || used == data.size()) {
    drop_input();
  } else if (own) {
    input_.erase(0, used);
  } else {
    input_.append(data.substr(used));
  }
  if ((finishing_ && !paused) || (draining_ && !paused && !midway())) close = true;
}

std::size_t RespSession::answer_all(std::string_view data) {
  RespWriter writer(out, version_);
  std::size_t used = 0;
  if (!parser_) {
    parser_ = Spare<RespParser>::take();
    parser_->begin();
  }
  // One command is read ahead of the one that is answered, so that memory may be fetched meanwhile.
  std::unique_ptr<RespParser> ahead = Spare<RespParser>::take();
  RespParser::Step step = parser_->parse(data, limits_);
  bool partial = step == RespParser::Step::kMore && !data.empty();
  while (step != RespParser::Step::kMore) {
    if (out.size() > kMaxUnsent) {
      paused = true;
      break;
    }
    if (step == RespParser::Step::kRefused) {
      writer.error("ERR Protocol error: " + parser_->problem());
      close = true;
      break;
    }
    const std::size_t after = used + parser_->size();
    ahead->begin();
    const RespParser::Step next = ahead->parse(data.substr(after), limits_);
    if (next == RespParser::Step::kWhole && !ahead->args().empty()) commands_->soon(ahead->args());
    used = after;
    const std::vector<std::string_view>& args = parser_->args();
    if (!args.empty()) {
      if (parser_->is_inline() && (same_word(args[0], "post") || same_word(args[0], "host:"))) {
        close = true;  // a browser that was talked into speaking to us
        break;
      }
      commands_->command(args, writer, *this);
      version_ = writer.version();
      if (close) break;
      if (asked_) {
        paused = true;
        break;
      }
    }
    std::swap(parser_, ahead);
    step = next;
    partial = step == RespParser::Step::kMore && used < data.size();
  }
  Spare<RespParser>::give_back(std::move(ahead));
  if (!partial || paused || close) Spare<RespParser>::give_back(std::move(parser_));
  return used;
}

void RespSession::answer_later(const std::shared_ptr<std::atomic<bool>>& asked, std::string_view text, int version) {
  if (asked != asked_ || close) return;
  asked_.reset();
  version_ = version;
  out += text;
  // What has come meanwhile is answered as soon as the driver has sent this.
  paused = !input_.empty();
  if ((finishing_ || draining_) && !paused) close = true;
}

void RespSession::finish() {
  finishing_ = true;
  abandon();
  if (!paused) close = true;
}

void RespSession::drain() {
  draining_ = true;
  if (!paused && !midway()) close = true;
}

}  // namespace

std::unique_ptr<Session> make_resp_session(std::unique_ptr<RespCommands> commands, const RespLimits& limits) {
  return std::make_unique<RespSession>(std::move(commands), limits);
}

}  // namespace headgate::net
