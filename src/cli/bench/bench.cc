// `headgate bench`: a load generator for HTTP and RESP, with a latency report.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_load.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/view/describe.h"
#include "cli/view/overview.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate bench: load a server and report rates and latencies

Without --rate every connection sends --pipeline requests together and waits
for their answers, which finds the most a server can do. With --rate requests
are due at fixed instants and latency counts from then on, so a server that
stalls cannot hide it: use this for latency.

Usage: headgate bench [OPTIONS]

The server:
  --url URL           POST /v1/check over plain HTTP there (default:
                      HEADGATE_URL, else http://127.0.0.1:7070)
  --resp ADDR         CL.THROTTLE over the Redis protocol at host:port
  --quota             POST /api/quotas/check instead; needs a token
  --check             HG.CHECK instead of CL.THROTTLE, with --resp
  --token-file FILE   holds the token (default: HEADGATE_TOKEN)

The load:
  --connections N     1 to 20000 (default: 50)
  --pipeline N        unanswered requests on each, 1 to 4096 (default: 1)
  --threads N         1 to 64 (default: 1)
  --keys N            random agents or keys (default: 100000)
  --rate N            requests a second in all (default: as many as go)
  --duration SPAN     how long it counts (default: 10s)
  --requests N        so many, instead of a duration
  --warmup SPAN       before that, uncounted (default: 1s; 0 with --requests)
  --operation OP      what the checks ask for (default: bench)
  --limit B,C,P       max_burst, count and period of CL.THROTTLE (default:
                      15,30,60)

Options:
  --json              one JSON object
  --no-color          no colours
  -h, --help          print this
)";

std::atomic<bool> stop{false};

struct Options {
  ClientOptions client;
  std::string resp;
  bool check = false;
  bool quota = false;
  int connections = 50;
  int pipeline = 1;
  int threads = 1;
  std::int64_t keys = 100'000;
  double rate = 0;
  std::string duration;
  std::int64_t requests = 0;
  std::string warmup;
  std::string operation = "bench";
  std::string limit = "15,30,60";
  bool json = false;
  bool no_color = false;
};

struct Bench {
  LoadPlan plan;
  BenchRequest request{""};
  std::string what;   // "POST /v1/check at http://127.0.0.1:7070"
  std::string kind;   // "http", "quota", "cl.throttle", "hg.check"
  std::string where;  // URL or address
};

Error misused(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Result<Nanos> span(const char* name, const std::string& text, Nanos least) {
  const auto read = policy::parse_duration(text);
  if (!read || *read < least || *read > 24h) {
    return misused(fmt::format("{} must be a duration of at most 24h such as 10s, got \"{}\"", name, text));
  }
  return *read;
}

Result<ThrottleLimit> read_limit(const std::string& text) {
  const std::size_t first = text.find(',');
  const std::size_t second = first == std::string::npos ? first : text.find(',', first + 1);
  if (second == std::string::npos) return misused(fmt::format("--limit must be three numbers, got \"{}\"", text));
  ThrottleLimit limit{text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  for (const std::string* each : {&limit.max_burst, &limit.count, &limit.period}) {
    if (each->empty() || each->find_first_not_of("0123456789") != std::string::npos) {
      return misused(fmt::format("--limit must be three numbers, got \"{}\"", text));
    }
  }
  return limit;
}

// host:port, and the path below which the server's own begin.
Result<void> aim_http(const Options& options, const std::string& token, Bench& bench) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kAsk);
  if (!client) return std::move(client).error();
  bench.where = client->url();
  if (bench.where.starts_with("https://")) {
    return misused("bench speaks plain HTTP: it cannot load " + bench.where);
  }
  std::string rest = bench.where.substr(std::string_view("http://").size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string path = options.quota ? "/api/quotas/check" : "/v1/check";
  HttpTarget http{rest.substr(0, slash), rest.substr(slash) + path, token};
  const std::size_t after_host = http.host.starts_with('[') ? http.host.find(']') : 0;
  const bool port = http.host.find(':', after_host) != std::string::npos;
  Result<LoadTarget> target = find_target(port ? http.host : http.host + ":80");
  if (!target) return std::move(target).error();
  bench.plan.target = std::move(*target);
  bench.plan.target.name = bench.where;
  bench.request = options.quota ? quota_request(http, options.operation) : http_request(http, options.operation);
  bench.kind = options.quota ? "quota" : "http";
  bench.what = fmt::format("POST {} at {}", path, bench.where);
  return {};
}

Result<void> aim_resp(const Options& options, const std::string& token, Bench& bench) {
  Result<LoadTarget> target = find_target(options.resp);
  if (!target) return std::move(target).error();
  bench.plan.target = std::move(*target);
  bench.plan.kind = options.check ? BenchKind::kCheck : BenchKind::kThrottle;
  bench.kind = options.check ? "hg.check" : "cl.throttle";
  bench.where = bench.plan.target.name;
  bench.what = fmt::format("{} at {}", options.check ? "HG.CHECK" : "CL.THROTTLE", bench.where);
  if (!token.empty()) bench.plan.greeting = resp_command({"AUTH", token});
  Result<ThrottleLimit> limit = read_limit(options.limit);
  if (!limit) return std::move(limit).error();
  bench.request = options.check ? check_request(options.operation) : throttle_request(*limit);
  return {};
}

Result<Bench> read_options(const Options& options) {
  Bench bench;
  LoadPlan& plan = bench.plan;
  if (options.check && options.resp.empty()) return misused("--check goes with --resp: HTTP checks anyway");
  if (options.quota && !options.resp.empty()) return misused("--quota goes over HTTP, not --resp");
  if (!options.resp.empty() && !options.client.url.empty()) return misused("--url and --resp cannot both be loaded");
  if (options.requests > 0 && !options.duration.empty()) {
    return misused("--requests and --duration cannot both say when it ends");
  }
  if (options.requests < 0) return misused(fmt::format("--requests must be at least 1, got {}", options.requests));
  if (options.keys < 1 || options.keys > BenchRequest::kMostKeys) {
    return misused(fmt::format("--keys must be between 1 and {}, got {}", BenchRequest::kMostKeys, options.keys));
  }
  constexpr double kMostRate = 1e8;
  if (!(options.rate >= 0) || options.rate > kMostRate) {
    return misused(fmt::format("--rate must be between 0 and 100000000, got {}", number_text(options.rate)));
  }
  if (options.operation.empty() || options.operation.size() > kMaxNameBytes ||
      options.operation.find(BenchRequest::kKey) != std::string::npos) {
    return misused(fmt::format("--operation must be the name of one, got \"{}\"", options.operation));
  }
  const Result<Nanos> duration = span("--duration", options.duration.empty() ? "10s" : options.duration, 1ms);
  if (!duration) return duration.error();
  const char* warm = options.requests > 0 ? "0s" : "1s";
  const Result<Nanos> warmup = span("--warmup", options.warmup.empty() ? warm : options.warmup, 0s);
  if (!warmup) return warmup.error();
  plan.connections = options.connections;
  plan.pipeline = options.pipeline;
  plan.threads = std::min(options.threads, options.connections);
  plan.keys = static_cast<std::uint32_t>(options.keys);
  plan.rate = options.rate;
  plan.requests = static_cast<std::uint64_t>(options.requests);
  plan.duration = options.requests > 0 ? Nanos{0} : *duration;
  plan.warmup = *warmup;
  const Result<std::string> token = given_token(options.client);
  if (!token) return token.error();
  const Result<void> aimed = options.resp.empty() ? aim_http(options, *token, bench) : aim_resp(options, *token, bench);
  if (!aimed) return aimed.error();
  return bench;
}

// Only on a terminal: on standard error, overwriting itself.
class ProgressBar {
 public:
  explicit ProgressBar(bool wanted) : wanted_(wanted && isatty(STDERR_FILENO) != 0) {}
  ~ProgressBar() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void show(const LoadProgress& progress) {
    if (!wanted_) return;
    constexpr int kWidth = 40;
    const int full = static_cast<int>(progress.part * kWidth);
    fmt::print(stderr, "\r[{:<{}}] {:>3.0f} %  {} answered\033[K", std::string(static_cast<std::size_t>(full), '='),
               kWidth, progress.part * 100, count_text(progress.answered));
    std::fflush(stderr);
    shown_ = true;
  }

 private:
  bool wanted_;
  bool shown_ = false;
};

double micros(Nanos span) { return std::round(static_cast<double>(span.count()) / 10) / 100; }

constexpr std::pair<const char*, double> kPercentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99_9", 99.9}};

double per_second(const LoadResult& result) {
  const double seconds = static_cast<double>(result.elapsed.count()) / 1e9;
  return seconds > 0 ? static_cast<double>(result.answered()) / seconds : 0;
}

ordered_json report_json(const Bench& bench, const LoadResult& result) {
  const LoadPlan& plan = bench.plan;
  ordered_json json{{"target", bench.where},     {"kind", bench.kind},      {"connections", plan.connections},
                    {"pipeline", plan.pipeline}, {"threads", plan.threads}, {"keys", plan.keys}};
  json["rate"] = plan.rate > 0 ? number_json(plan.rate) : ordered_json();
  json["duration_ms"] = number_json(std::round(millis(result.elapsed)));
  json["requests"] = result.answered();
  json["requests_per_second"] = number_json(std::round(per_second(result) * 10) / 10);
  json["allowed"] = result.allowed;
  json["denied"] = result.denied;
  json["other"] = result.other;
  json["errors"] = result.errors;
  json["unanswered"] = result.unanswered;
  ordered_json latency;
  for (const auto& [name, percent] : kPercentiles) latency[name] = micros(result.latency.percentile(percent));
  latency["max"] = micros(result.latency.max());
  latency["mean"] = micros(result.latency.mean());
  json["latency_us"] = std::move(latency);
  json["bytes"] = {{"sent", result.sent_bytes}, {"received", result.received_bytes}};
  json["first_error"] = result.first_error.empty() ? ordered_json() : ordered_json(result.first_error);
  return json;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr double kMega = 1e6;
  return bytes < 1'000'000 ? fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3)
                           : fmt::format("{:.1f} MB", static_cast<double>(bytes) / kMega);
}

std::string report(const Bench& bench, const LoadResult& result, const Terminal& terminal) {
  const LoadPlan& plan = bench.plan;
  const auto plural = [](std::int64_t count, const char* noun) {
    return fmt::format("{} {}{}", count_text(static_cast<std::uint64_t>(count)), noun, count == 1 ? "" : "s");
  };
  std::string text = terminal.paint(printable(bench.what), Ink::kBold) + "\n";
  text += fmt::format("{}, {} deep, {}, {}{}, {}\n\n", plural(plan.connections, "connection"), plan.pipeline,
                      plural(plan.threads, "thread"), plural(plan.keys, "key"),
                      plan.rate > 0 ? ", at " + rate_text(plan.rate) + "/s" : "", span_text(result.elapsed));
  const auto line = [&](const char* name, const std::string& about, Ink ink = Ink::kPlain) {
    text += fmt::format("  {:<11}{}\n", name, terminal.paint(about, ink));
  };
  const auto share = [&](std::uint64_t count) {
    const double part = result.answered() > 0 ? static_cast<double>(count) / static_cast<double>(result.answered()) : 0;
    return fmt::format("{} ({:.1f} %)", count_text(count), part * 100);
  };
  line("requests", fmt::format("{}, {} a second", count_text(result.answered()), rate_text(per_second(result))),
       Ink::kGreen);
  line("allowed", share(result.allowed));
  line("denied", share(result.denied));
  if (result.other > 0) line("other", share(result.other));
  line("errors", result.errors == 0 ? "0" : share(result.errors), result.errors > 0 ? Ink::kRed : Ink::kPlain);
  if (result.unanswered > 0) line("unanswered", count_text(result.unanswered), Ink::kRed);
  if (!result.first_error.empty()) {
    constexpr int kIndent = 13;
    std::vector<std::string> lines = wrap("for example: " + result.first_error, terminal.width, kIndent);
    for (const std::string& each : lines) text += each + "\n";
  }
  const auto latency = [](Nanos value) { return latency_text(static_cast<double>(value.count()) / 1e3); };
  text += "\n";
  line("latency", fmt::format("p50 {}, p90 {}, p99 {}", latency(result.latency.percentile(50)),
                              latency(result.latency.percentile(90)), latency(result.latency.percentile(99))));
  line("", fmt::format("p99.9 {}, max {}, mean {}", latency(result.latency.percentile(99.9)),
                       latency(result.latency.max()), latency(result.latency.mean())));
  line("bytes", fmt::format("{} sent, {} received", bytes_text(result.sent_bytes), bytes_text(result.received_bytes)));
  return text;
}

int run_bench(const Options& options) {
  Result<Bench> bench = read_options(options);
  if (!bench) {
    return bench.error().code == ErrorCode::kInvalidArgument ? not_understood(bench.error().message, "bench")
                                                             : failed(bench.error().message);
  }
  // The first interrupt ends the run and reports it, the second ends the program.
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  Result<LoadResult> result = [&] {
    ProgressBar bar(!options.json);
    return run_load(bench->plan, bench->request, stop, [&](const LoadProgress& progress) { bar.show(progress); });
  }();
  if (!result) return failed(result.error().message);
  Terminal terminal = Terminal::detect();
  if (options.no_color) terminal.colour = false;
  const int written = write(options.json ? json_text(report_json(*bench, *result)) : report(*bench, *result, terminal));
  const bool any = result->allowed + result->denied + result->other > 0;
  return any ? written : kFailed;
}

}  // namespace

Command bench_command(Arguments parent) {
  Arguments arguments = parent.command("bench");
  auto options = std::make_shared<Options>();
  arguments.option("--url", options->client.url);
  arguments.option("--resp", options->resp);
  arguments.flag("--check", options->check);
  arguments.flag("--quota", options->quota);
  arguments.option("--token-file", options->client.token_file);
  arguments.option("--connections", options->connections).check(between(1, LoadPlan::kMostConnections));
  arguments.option("--pipeline", options->pipeline).check(between(1, LoadPlan::kMostPipeline));
  arguments.option("--threads", options->threads).check(between(1, LoadPlan::kMostThreads));
  arguments.option("--keys", options->keys);
  arguments.option("--rate", options->rate);
  arguments.option("--duration", options->duration);
  arguments.option("--requests", options->requests);
  arguments.option("--warmup", options->warmup);
  arguments.option("--operation", options->operation);
  arguments.option("--limit", options->limit);
  arguments.flag("--json", options->json);
  arguments.flag("--no-color", options->no_color);
  return {"bench", kHelp, arguments, [options] { return run_bench(*options); }};
}

}  // namespace headgate::cli
