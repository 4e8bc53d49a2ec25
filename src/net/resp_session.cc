#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "base/ascii.h"
#include "net/byte_buffer.h"
#include "net/resp.h"
#include "net/resp_parser.h"
#include "net/spare.h"

namespace headgate::net {
namespace {

// No further command is answered while more than this waits to be sent.
constexpr std::size_t kMaxUnsent = 1 << 20;
// Commands of one connection whose answers come from elsewhere; the next ones wait until some have come.
constexpr std::size_t kMostAsked = 128;

class RespSession final : public Session, private RespContext {
 public:
  RespSession(std::unique_ptr<RespCommands> commands, const RespLimits& limits)
      : commands_(std::move(commands)), limits_(limits), unsigned_limits_(limits) {
    idle_limit = limits.idle;
    unsigned_limits_.max_command = std::min(limits.max_command, limits.max_unsigned);
    unsigned_limits_.max_bulk = std::min(limits.max_bulk, limits.max_unsigned);
    unsigned_limits_.max_line = std::min(limits.max_line, limits.max_unsigned);
  }
  ~RespSession() override { abandon(); }

  void receive(std::string_view bytes, Nanos now) override;
  void finish() override;
  void drain() override;
  void tick(Nanos now) override;
  void overloaded() override { refuse("ERR the server holds too many unfinished commands; try again later"); }
  [[nodiscard]] std::size_t buffered() const noexcept override { return input_.capacity(); }
  [[nodiscard]] bool midway() const noexcept override { return parser_ != nullptr && !paused && !close; }
  // Not while it may go on with what it has kept.
  [[nodiscard]] bool busy() const noexcept override {
    return !asked_.empty() && (!paused || input_.empty() || asked_.size() >= kMostAsked);
  }

  using Abandoned = std::shared_ptr<std::atomic<bool>>;  // true: the client is gone
  // The answer to a command that was put off. kLast: the connection ends with it.
  enum class Then : std::uint8_t { kGoOn, kLast };
  void answer_later(const Abandoned& asked, std::string_view text, Then then);

 private:
  class Later;

  std::shared_ptr<RespLater> later() override;
  void quit() override { closing_ = true; }
  [[nodiscard]] Nanos now() const noexcept override { return now_; }

  std::size_t answer_all(std::string_view data);
  void refuse(std::string_view why);
  [[nodiscard]] const RespLimits& limits() const noexcept {
    return standing == Standing::kUnknown ? unsigned_limits_ : limits_;
  }
  void drop_input() noexcept {
    input_.release();
    if (parser_) Spare<RespParser>::give_back(std::move(parser_));
  }
  void abandon() noexcept {
    if (asked_.empty()) return;
    for (const Slot& slot : asked_) slot.asked->store(true, std::memory_order_relaxed);
    commands_->closed();
  }
  // Where the next reply goes: answers keep the order of their commands.
  [[nodiscard]] std::string& tail() noexcept { return asked_.empty() ? out : asked_.back().after; }
  // What is to be done once nothing is left to answer.
  void close_if_over() noexcept {
    if (!asked_.empty()) {
      paused = paused || closing_ || finishing_;  // nothing more is to be read
    } else if (closing_ || (finishing_ && !paused) || (draining_ && !paused && !midway())) {
      close = true;
    }
  }

  const std::unique_ptr<RespCommands> commands_;
  const RespLimits limits_;
  RespLimits unsigned_limits_;  // until it has signed in
  Nanos now_{0};
  Nanos began_{0};                      // when it was first heard of
  ByteBuffer input_;                    // what has come and is not answered
  std::unique_ptr<RespParser> parser_;  // while a command is being read
  struct Slot {
    Abandoned asked;
    bool answered = false;
    bool last = false;  // the connection ends with it
    std::string text;   // the answer
    std::string after;  // what was answered at once to commands that followed
  };
  std::deque<Slot> asked_;  // those whose answers come from elsewhere, in order
  int version_ = 2;
  bool closing_ = false;    // after what has been asked is answered
  bool finishing_ = false;  // the peer sends no more
  bool draining_ = false;   // the server wants no more
};

class RespSession::Later final : public RespLater {
 public:
  Later(std::shared_ptr<Link> link, Abandoned asked, int version) noexcept
      : link_(std::move(link)), asked_(std::move(asked)), version_(version) {}
  ~Later() override {
    send([](RespWriter& reply) { reply.error("ERR the command was given up"); });
  }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  void send(const std::function<void(RespWriter&)>& write) override { post(write, Then::kGoOn); }
  void refuse(std::string_view error) override {
    post([&](RespWriter& writer) { writer.error(error); }, Then::kLast);
  }
  [[nodiscard]] bool abandoned() const noexcept override { return asked_->load(std::memory_order_relaxed); }

 private:
  void post(const std::function<void(RespWriter&)>& write, Then then) {
    if (std::exchange(sent_, true) || !link_) return;
    std::string text;
    {
      RespWriter writer(text, version_);
      write(writer);
    }
    link_->post([text = std::move(text), asked = asked_, then](Session& session) {
      if (auto* resp = dynamic_cast<RespSession*>(&session)) resp->answer_later(asked, text, then);
    });
  }

  const std::shared_ptr<Link> link_;
  const Abandoned asked_;
  const int version_;
  bool sent_ = false;
};

std::shared_ptr<RespLater> RespSession::later() {
  Slot& slot = asked_.emplace_back();
  slot.asked = std::make_shared<std::atomic<bool>>(false);
  return std::make_shared<Later>(link, slot.asked, version_);
}

void RespSession::receive(std::string_view bytes, Nanos now) {
  if (close || closing_) return;
  now_ = now;
  if (began_ == Nanos{0}) began_ = now;
  if (standing == Standing::kUnknown) standing = commands_->standing();
  paused = false;
  const bool own = !input_.empty();
  if (own) input_.append(bytes);
  const std::string_view data = own ? input_.view() : bytes;
  const std::size_t used = answer_all(data);
  if (close || closing_ || used == data.size()) {
    drop_input();
  } else if (own) {
    input_.erase(0, used);
  } else {
    input_.append(data.substr(used));
  }
  standing = commands_->standing();
  close_if_over();
}

// Closes a connection that did not sign in in time, and one whose token is no longer valid. While answers are
// outstanding the token is left to them: they are refused in their turn.
void RespSession::tick(Nanos now) {
  if (began_ == Nanos{0}) began_ = now;
  if (asked_.empty() && !close) {
    if (const std::string_view error = commands_->tick(now); !error.empty()) return refuse(error);
  }
  if (commands_->standing() != Standing::kUnknown || now - began_ < limits_.sign_in) return;
  refuse("NOAUTH Authentication required, and not given in time.");
}

void RespSession::refuse(std::string_view why) {
  if (close) return;
  if (asked_.empty()) RespWriter(out, version_).error(why);
  close = true;
}

std::size_t RespSession::answer_all(std::string_view data) {
  std::size_t used = 0;
  if (!parser_) {
    parser_ = Spare<RespParser>::take();
    parser_->begin();
  }
  // One command is read ahead of the one that is answered, so that memory may be fetched meanwhile.
  std::unique_ptr<RespParser> ahead = Spare<RespParser>::take();
  RespParser::Step step = parser_->parse(data, limits());
  bool partial = step == RespParser::Step::kMore && !data.empty();
  while (step != RespParser::Step::kMore) {
    RespWriter writer(tail(), version_);
    if (tail().size() > kMaxUnsent || asked_.size() >= kMostAsked) {
      paused = true;
      break;
    }
    if (step == RespParser::Step::kRefused) {
      writer.error("ERR Protocol error: " + parser_->problem());
      closing_ = true;
      break;
    }
    const std::size_t after = used + parser_->size();
    ahead->begin();
    const RespParser::Step next = ahead->parse(data.substr(after), limits());
    if (next == RespParser::Step::kWhole && !ahead->args().empty()) commands_->soon(ahead->args());
    used = after;
    const std::vector<std::string_view>& args = parser_->args();
    if (!args.empty()) {
      if (parser_->is_inline() &&
          (base::equals_ignoring_case(args[0], "post") || base::equals_ignoring_case(args[0], "host:"))) {
        close = true;  // a browser that was talked into speaking to us
        break;
      }
      commands_->command(args, writer, *this);
      version_ = writer.version();
      if (closing_) break;
    }
    std::swap(parser_, ahead);
    step = next;
    partial = step == RespParser::Step::kMore && used < data.size();
  }
  Spare<RespParser>::give_back(std::move(ahead));
  if (!partial || paused || close || closing_) Spare<RespParser>::give_back(std::move(parser_));
  return used;
}

void RespSession::answer_later(const Abandoned& asked, std::string_view text, Then then) {
  const auto slot = std::find_if(asked_.begin(), asked_.end(), [&](const Slot& each) { return each.asked == asked; });
  if (slot == asked_.end() || close) return;
  slot->answered = true;
  slot->text = text;
  slot->last = then == Then::kLast;
  while (!asked_.empty() && asked_.front().answered) {
    out += asked_.front().text;
    if (asked_.front().last) {
      asked_.pop_front();
      abandon();
      drop_input();
      close = true;
      return;
    }
    out += asked_.front().after;
    asked_.pop_front();
  }
  // What it has kept is answered as soon as the driver has sent this.
  paused = !input_.empty() && parser_ == nullptr;
  close_if_over();
}

void RespSession::finish() {
  finishing_ = true;
  abandon();
  if (paused && !input_.empty()) return;
  close_if_over();
}

void RespSession::drain() {
  draining_ = true;
  close_if_over();
}

}  // namespace

std::unique_ptr<Session> make_resp_session(std::unique_ptr<RespCommands> commands, const RespLimits& limits) {
  return std::make_unique<RespSession>(std::move(commands), limits);
}

}  // namespace headgate::net
