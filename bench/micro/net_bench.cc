// What the HTTP and RESP sessions cost by themselves: one request read, and a fixed answer written.
//
//   build/bench/bench/headgate_bench_net --benchmark_filter=. --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <string>

#include "micro/allocation_count.h"
#include "net/http.h"
#include "net/resp.h"

namespace headgate::bench {
namespace {

constexpr std::string_view kBody = R"({"agent": "agent-17", "operation": "CREATE_COMPONENT", "session": "s-1234567", )"
                                   R"("context": {"type": "UI_DEVELOPMENT"}})";
constexpr std::string_view kDecision =
    R"({"allowed": true, "action": "allow", "reason": "All rate limit policies passed", "policy_ids": ["a"], )"
    R"("limit": 50, "remaining": 49})";

class FixedHttp final : public net::HttpHandler {
 public:
  void handle(const net::HttpRequest& request, net::HttpReply& reply) noexcept override {
    benchmark::DoNotOptimize(request.body.data());
    net::HttpAnswer answer;
    answer.body = kDecision;
    answer.headers = "X-RateLimit-Limit: 50\r\nX-RateLimit-Remaining: 49\r\nX-RateLimit-Reset: 60\r\n";
    reply.send(answer);
  }
};

class FixedResp final : public net::RespCommands {
 public:
  void command(std::span<const std::string_view> args, net::RespWriter& reply,
               net::RespContext& /*context*/) noexcept override {
    benchmark::DoNotOptimize(args.data());
    reply.array(5);
    for (const int number : {0, 16, 15, -1, 2}) reply.integer(number);
  }
};

// `count` times the text, with slack after it.
std::string repeated(const std::string& text, std::int64_t count) {
  std::string all;
  for (std::int64_t i = 0; i < count; ++i) all += text;
  all.append(net::Session::kSlack, '\0');
  return all;
}

void drive(benchmark::State& state, net::Session& session, const std::string& text) {
  const std::string all = repeated(text, state.range(0));
  const std::string_view bytes(all.data(), all.size() - net::Session::kSlack);
  session.receive(bytes, Nanos{1});
  session.out.clear();
  const std::uint64_t before = allocations();
  for (auto _ : state) {
    session.receive(bytes, Nanos{1});
    benchmark::DoNotOptimize(session.out.data());
    session.out.clear();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  const double requests = static_cast<double>(state.iterations() * state.range(0));
  state.counters["per_request"] =
      benchmark::Counter(requests, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["allocations"] = static_cast<double>(allocations() - before) / requests;
}

void http_check(benchmark::State& state) {
  FixedHttp handler;
  net::Peer peer;
  const auto session = net::make_http_session(handler, peer);
  std::string text =
      "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nContent-Type: application/json\r\nContent-Length: ";
  text += std::to_string(kBody.size()) + "\r\n\r\n";
  text += kBody;
  drive(state, *session, text);
}
BENCHMARK(http_check)->Arg(1)->Arg(16);

void resp_throttle(benchmark::State& state) {
  const auto session = net::make_resp_session(std::make_unique<FixedResp>());
  drive(state, *session,
        "*6\r\n$11\r\nCL.THROTTLE\r\n$12\r\nuser:1234567\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n");
}
BENCHMARK(resp_throttle)->Arg(1)->Arg(16);

}  // namespace
}  // namespace headgate::bench

BENCHMARK_MAIN();
