// `headgate top`: show a server live in the terminal. The picture is made in top_frame.cc.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/view/screen.h"
#include "cli/view/top_frame.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate top: show a server live in the terminal

Shows rates and denials with the last minute as bars, the busiest agents and
policies, the load and the emergency throttle, and the commands that run or
wait under quotas. Keys: q quits, a, d and n sort by allowed, denied and name,
p pauses, ? shows help. If the server cannot be reached, it keeps trying.

Usage: headgate top [OPTIONS]

Options:
  --interval SPAN     refresh interval, 100ms to 1h (default: 1s)
  --once              print one screen and exit
  --width N           fit N columns, 40 to 400, with --once
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

struct Options {
  ClientOptions client;
  std::string interval = "1s";
  bool once = false;
  TerminalOptions terminal;
};

class Top {
 public:
  Top(Client client, Nanos interval, const Terminal& terminal)
      : client_(std::move(client)), interval_(interval), terminal_(terminal) {
    view_.url = client_.url();
  }

  // One answer; false if there was none, and then why is in the view.
  bool ask() {
    const Result<ordered_json> answer = client_.json("GET", "/api/overview");
    if (!answer) {
      // The first line: the rest is advice, and the picture has room for one.
      view_.trouble = answer.error().message.substr(0, answer.error().message.find('\n'));
      refused_ = answer.error().code != ErrorCode::kIo && !answer.error().transient;
      advice_ = answer.error().message;
      return false;
    }
    view_.trouble.clear();
    view_.overview = read_overview(*answer);
    ask_queue();
    remember(view_.checks, view_.overview->checks_per_second);
    remember(view_.denials, view_.overview->denied_per_second);
    return true;
  }

  // Not every server has quotas, nor may every token look at them: then there is nothing to show.
  void ask_queue() {
    if (!has_queue_) return;
    const Result<ordered_json> answer = client_.json("GET", "/api/quotas/queue");
    has_queue_ = answer || answer.error().transient || answer.error().code == ErrorCode::kIo;
    if (answer) {
      view_.queue = read_quota_queue(*answer);
    } else {
      view_.queue.reset();
    }
  }

  int once() {
    if (!ask()) return failed(advice_);
    view_.keys = false;
    constexpr int kAllRows = 1000;
    std::string text;
    for (const std::string& line : top_frame(view_, {terminal_.width, kAllRows}, terminal_)) text += line + "\n";
    return write(text);
  }

  int live() {
    // A rejected request ends the command; a server that cannot be reached may come back.
    if (!ask() && refused_) return failed(advice_);
    Result<std::unique_ptr<Screen>> screen = Screen::open();
    if (!screen) return failed(screen.error().message);
    screen_ = std::move(*screen);
    client_.watch(screen_->descriptors(), [this] { return react(); });
    auto due = SteadyClock::now() + interval_;
    draw();
    while (!over_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - SteadyClock::now()).count();
      std::vector<pollfd> waits;
      for (const int descriptor : screen_->descriptors()) waits.push_back({descriptor, POLLIN, 0});
      if (::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000))) > 0) react();
      if (over_ || SteadyClock::now() < due) continue;
      due = SteadyClock::now() + interval_;
      if (view_.paused) continue;
      ask();
      if (!over_) draw();
    }
    screen_.reset();
    return kDone;
  }

 private:
  void remember(std::vector<double>& history, double value) const {
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1min / interval_, 2));
    history.push_back(value);
    if (history.size() > most) history.erase(history.begin());
  }
  void draw() { screen_->draw(top_frame(view_, screen_->size(), terminal_)); }

  // Whatever was pressed or happened; false when it is over.
  bool react() {
    const Screen::Input input = screen_->take();
    over_ = over_ || input.over;
    for (const char key : input.keys) press(key);
    if (!over_ && (input.changed || !input.keys.empty())) draw();
    return !over_;
  }
  void press(char key) {
    switch (key) {
      case 'q':
      case 'Q': over_ = true; break;
      case 'a': view_.sort = TopSort::kAllowed; break;
      case 'd': view_.sort = TopSort::kDenied; break;
      case 'n': view_.sort = TopSort::kName; break;
      case 'p': view_.paused = !view_.paused; break;
      case '?': view_.help = !view_.help; break;
      default: break;
    }
  }

  Client client_;
  Nanos interval_;
  Terminal terminal_;
  TopView view_;
  std::unique_ptr<Screen> screen_;
  std::string advice_;
  bool refused_ = false;
  bool has_queue_ = true;
  bool over_ = false;
};

int top(const Options& options) {
  const auto interval = policy::parse_duration(options.interval);
  if (!interval || *interval < 100ms || *interval > 1h) {
    return not_understood(fmt::format("--interval must be between 100ms and 1h, got \"{}\"", options.interval), "top");
  }
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  Top view(std::move(*client), *interval, options.terminal.terminal());
  return options.once ? view.once() : view.live();
}

}  // namespace

Command top_command(Arguments parent) {
  Arguments arguments = parent.command("top");
  auto options = std::make_shared<Options>();
  arguments.option("--interval", options->interval);
  arguments.flag("--once", options->once);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"top", kHelp, arguments, [options] { return top(*options); }};
}

}  // namespace headgate::cli
