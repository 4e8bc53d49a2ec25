// `headgate run`: run a command under a user's quota. What it is made of: run_server.h asks and records, waiting_line.h
// shows the line, supervisor.h runs the command.
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/run/pace.h"
#include "cli/run/run_server.h"
#include "cli/run/run_texts.h"
#include "cli/run/supervisor.h"
#include "cli/view/describe.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate run: run a command under a user's quota

Asks the server whether the command may start, waits in the queue with --wait,
runs it at the speed that the server allows, and records its time, CPU, memory
and exit code, including all processes that it starts.

Usage: headgate run --user U --type T [OPTIONS] -- CMD [ARG...]

The run:
  --user U            the user whose quota is charged
  --type T            what kind of command: shell, code, test, review, ...
  --session S         the session it belongs to
  --plan P            the user's plan, where the server has none for it
  --estimate-cpu N    expected CPU, in percent of a core
  --estimate-mem N    expected memory, in MB

Options:
  --wait              queue if it cannot start now, for up to an hour;
                      --wait=5m queues for up to 5 minutes
  --priority N        place in the queue; higher starts first (default: 0)
  --on-failure open|closed
                      if no server answers: open runs the command, closed
                      does not (default: closed)
  --warn auto|always|never
                      print warnings and the place in the queue to standard
                      error; auto: if that is a terminal (default: auto)
  --cgroup DIR        limit its speed in a control group created in DIR
                      (default: the group of headgate itself, if permitted)
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP R"(
Exit code: that of the command. A signal that ends the command ends headgate
too; a shell shows 128 plus its number. 75 if it was denied or no server
answered, 126 if the command cannot be run, 127 if it was not found, 1 if the
server rejected the request, 2 for a usage error.
)";

// EX_TEMPFAIL: try again later.
constexpr int kNotNow = 75;
constexpr int kCannotExecute = 126;
constexpr int kNoSuchCommand = 127;

struct Options {
  ClientOptions client;
  RunSubject subject;
  std::string wait;
  std::optional<int> priority;
  std::optional<double> estimated_cpu;
  std::optional<double> estimated_mem;
  std::string on_failure = "closed";
  std::string warn = "auto";
  std::string control_group;
  std::vector<std::string> stray;
};

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  // Never short for so few bytes.
  static_cast<void>(!::getrandom(bytes.data(), bytes.size(), 0));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One run, from the question to the record.
class Run {
 public:
  Run(const Options& options, char** command, Nanos wait)
      : options_(options), command_(command), wait_(wait), terminal_(::isatty(STDERR_FILENO) == 1) {}

  int go() {
    // What is not there is not charged.
    const std::string_view path = environment("PATH");
    if (const int error = find_command(command_[0], path.empty() ? "/bin:/usr/bin" : path)) return not_run(error);
    if (signals_.descriptor() < 0) return failed("signals cannot be watched");
    Result<Client> client = Client::open(options_.client, Client::Purpose::kManage);
    if (!client) return failed(client.error().message);
    server_.emplace(std::move(*client), signals_);
    if (const std::optional<int> code = ask()) return *code;
    return execute();
  }

 private:
  [[nodiscard]] bool tells() const { return options_.warn == "always" || (options_.warn == "auto" && terminal_); }
  void warn(std::string_view text) const {
    if (tells()) fmt::print(stderr, "headgate: {}\n", text);
  }
  static int not_now(std::string_view text) {
    fmt::print(stderr, "headgate: {}\n", text);
    return kNotNow;
  }
  [[nodiscard]] int not_run(int error) const {
    fmt::print(stderr, "headgate: cannot run {}: {}\n", printable(command_[0]), std::strerror(error));
    return error == ENOENT ? kNoSuchCommand : kCannotExecute;
  }

  [[nodiscard]] ordered_json question() const {
    ordered_json body;
    body["user"] = options_.subject.user;
    body["type"] = options_.subject.type;
    if (!options_.subject.session.empty()) body["session"] = options_.subject.session;
    if (!options_.subject.plan.empty()) body["plan"] = options_.subject.plan;
    body["size"] = command_size(command_);
    if (options_.estimated_cpu) body["estimated_cpu"] = number_json(*options_.estimated_cpu);
    if (options_.estimated_mem) body["estimated_mem"] = number_json(*options_.estimated_mem);
    if (wait_ > Nanos{0}) body["max_wait_ms"] = number_json(std::ceil(millis(wait_)));
    if (options_.priority) body["priority"] = *options_.priority;
    body["run"] = run_;
    return body;
  }

  [[nodiscard]] WaitingLine::Show show() const {
    if (wait_ == Nanos{0} || !tells()) return WaitingLine::Show::kNothing;
    return terminal_ && environment("TERM") != "dumb" ? WaitingLine::Show::kLive : WaitingLine::Show::kOnce;
  }

  // An exit code if it may not run.
  std::optional<int> ask() {
    RunServer::Answer answer;
    int signal = 0;
    {
      WaitingLine line(options_.client, signals_, run_, show());
      answer = server_->check(question(), wait_, line);
      signal = line.signal();
    }
    switch (answer.kind) {
      case RunServer::Answer::Kind::kInterrupted: return interrupted(signal);
      case RunServer::Answer::Kind::kRefused: return failed(answer.message);
      case RunServer::Answer::Kind::kUnavailable:
        run_.clear();
        if (options_.on_failure == "closed") {
          return not_now("not run: " + answer.message + "\n\"--on-failure open\" would run it all the same");
        }
        warn(answer.message + "; running it all the same");
        return std::nullopt;
      case RunServer::Answer::Kind::kDecision: break;
    }
    const JsonFields decision(*answer.decision);
    if (!decision.flag("allowed")) return not_now(denial_text(decision, wall_ms()));
    if (const std::string id = decision.text("run"); !id.empty()) run_ = id;
    factor_ = usable_factor(decision.number("throttle_factor", 1));
    ttl_ = std::chrono::milliseconds(decision.count("run_ttl_ms"));
    if (const std::string warning = decision.text("warning"); !warning.empty()) warn(printable(warning));
    return hold_back(std::chrono::milliseconds(decision.count("delay_ms")));
  }

  // Some are let in only after a while.
  std::optional<int> hold_back(Nanos delay) {
    const auto due = std::chrono::steady_clock::now() + std::min<Nanos>(delay, 24h);
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - std::chrono::steady_clock::now()).count();
      if (left <= 0) return std::nullopt;
      pollfd news{signals_.descriptor(), POLLIN, 0};
      ::poll(&news, 1, static_cast<int>(left));
      while (const auto info = signals_.take()) {
        const int signal = static_cast<int>(info->ssi_signo);
        if (signal == SIGTSTP) stop_by(signal);
        if (asks_to_end(signal)) return interrupted(signal);
      }
    }
  }

  // The closed connection has left the line; but the answer may have been on its way.
  int interrupted(int signal) {
    server_->leave(run_);
    end_by(signal);
  }

  int execute() {
    const std::string hash = command_hash(command_);
    Supervisor supervisor(signals_);
    const Result<int> started = supervisor.start({command_, factor_, options_.control_group, inherited_});
    if (!started) {
      if (!run_.empty()) server_->leave(run_);
      return failed(started.error().message);
    }
    Execution execution;
    std::string error;
    if (*started != 0) {
      execution.exit_code = not_run(*started);
      execution.started_ms = wall_ms();
      error = std::strerror(*started);
    } else {
      execution = supervisor.wait(renewal());
      error = end_text(execution);
    }
    const std::string trouble = server_->record(record_json(options_.subject, hash, execution, error, run_));
    if (!trouble.empty()) warn("not recorded: " + trouble);
    if (execution.signal != 0) end_by(execution.signal);
    return execution.exit_code;
  }

  [[nodiscard]] Chore renewal() {
    if (run_.empty() || ttl_ <= Nanos{0}) return {};
    const Nanos every = std::max<Nanos>(ttl_ / 3, 1s);
    return {std::chrono::steady_clock::now() + every, [this, every] { server_->keep(run_, every); }};
  }

  const std::vector<int> inherited_ = open_descriptors();  // before we open any
  const Options& options_;
  char** command_;
  Nanos wait_;
  bool terminal_;
  std::string run_ = random_id();  // empty: no server knows of it
  double factor_ = 1;
  Nanos ttl_{0};
  Signals signals_;
  std::optional<RunServer> server_;
};

int run(const Options& options, char** command) {
  if (!options.stray.empty()) {
    if (options.stray.size() == 1 && policy::parse_duration(options.stray[0])) {
      return not_understood(fmt::format("how long to wait is written --wait={}", options.stray[0]), "run");
    }
    return not_understood(
        fmt::format("the command must stand after \"--\": headgate run ... -- {}", joined(options.stray, " ")), "run");
  }
  if (options.subject.user.empty()) return not_understood("--user is needed", "run");
  if (options.subject.type.empty()) return not_understood("--type is needed", "run");
  if (command == nullptr || command[0] == nullptr) {
    return not_understood("a command is needed: headgate run --user U --type T -- CMD", "run");
  }
  Nanos wait{0};
  if (!options.wait.empty()) {
    const auto span = policy::parse_duration(options.wait);
    if (!span || *span < Nanos{0} || *span > 24h) {
      return not_understood(
          fmt::format("--wait must be a duration up to 24h, such as 30s or 5m, got \"{}\"", options.wait), "run");
    }
    wait = *span;
  }
  return Run(options, command, wait).go();
}

ValueCheck one_of(std::vector<std::string> choices) {
  return [choices = std::move(choices)](const std::string& text) -> std::string {
    for (const std::string& choice : choices) {
      if (text == choice) return "";
    }
    return fmt::format("must be {}, got \"{}\"", joined(choices, " or "), text);
  };
}

std::string not_negative(const std::string& text) {
  const auto number = policy::parse_decimal(text);
  if (number && number->value() >= 0) return "";
  return fmt::format("must be a number and not less than 0, got \"{}\"", text);
}

}  // namespace

Command run_command(Arguments parent, char** const& command) {
  Arguments arguments = parent.command("run");
  auto options = std::make_shared<Options>();
  arguments.option("--user", options->subject.user);
  arguments.option("--type", options->subject.type);
  arguments.option("--session", options->subject.session);
  arguments.option("--plan", options->subject.plan);
  arguments.option("--estimate-cpu", options->estimated_cpu).check(not_negative);
  arguments.option("--estimate-mem", options->estimated_mem).check(not_negative);
  arguments.flag("--wait", options->wait, "1h");
  constexpr int kMostPriority = 1'000;
  arguments.option("--priority", options->priority).check(between(-kMostPriority, kMostPriority));
  arguments.option("--on-failure", options->on_failure).check(one_of({"open", "closed"}));
  arguments.option("--warn", options->warn).check(one_of({"auto", "always", "never"}));
  arguments.option("--cgroup", options->control_group);
  arguments.option("words", options->stray).hidden();
  options->client.add_to_managing(arguments);
  return {"run", kHelp, arguments, [options, &command] { return run(*options, command); }};
}

}  // namespace headgate::cli
