#include "cli/bench/bench_wire.h"

#include <vector>

namespace headgate::cli {
namespace {

using Outcome = BenchReply::Outcome;

TEST(BenchWire, RequestsDifferInTheirKeyAlone) {
  const BenchRequest request = throttle_request({"15", "30", "60"});
  std::string out;
  request.append(42, out);
  request.append(99'999'999, out);
  EXPECT_EQ(out,
            "*5\r\n$11\r\nCL.THROTTLE\r\n$14\r\nbench-00000042\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
            "*5\r\n$11\r\nCL.THROTTLE\r\n$14\r\nbench-99999999\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n");
}

TEST(BenchWire, HttpRequestsTellTheLengthOfTheirBody) {
  const BenchRequest request = http_request({"h:1", "/v1/check", "secret"}, "say \"hi\"");
  std::string out;
  request.append(7, out);
  const std::string body = R"({"agent":"bench-00000007","operation":"say \"hi\""})";
  EXPECT_EQ(out,
            "POST /v1/check HTTP/1.1\r\nHost: h:1\r\nAuthorization: Bearer secret\r\n"
            "Content-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
}

TEST(BenchWire, CellAnswersAreLimitedAndHeadgateAnswersAreAllowed) {
  const std::string zero = "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
  const std::string one = "*6\r\n:1\r\n:4\r\n:0\r\n:5\r\n$3\r\nall\r\n$5\r\nallow\r\n";
  EXPECT_EQ(read_reply(BenchKind::kThrottle, zero).outcome, Outcome::kAllowed);
  EXPECT_EQ(read_reply(BenchKind::kCheck, zero).outcome, Outcome::kDenied);
  EXPECT_EQ(read_reply(BenchKind::kThrottle, one).outcome, Outcome::kDenied);
  EXPECT_EQ(read_reply(BenchKind::kCheck, one).outcome, Outcome::kAllowed);
  EXPECT_EQ(read_reply(BenchKind::kCheck, one + zero).size, one.size());
}

TEST(BenchWire, ErrorsAreToldInTheirOwnWords) {
  const BenchReply resp = read_reply(BenchKind::kThrottle, "-ERR no such command\r\n");
  EXPECT_EQ(resp.outcome, Outcome::kError);
  EXPECT_EQ(resp.error, "ERR no such command");
  const BenchReply http =
      read_reply(BenchKind::kHttp, "HTTP/1.1 503 Busy\r\nconnection: CLOSE\r\ncontent-length: 4\r\n\r\nbusy");
  EXPECT_EQ(http.outcome, Outcome::kError);
  EXPECT_EQ(http.error, "busy");
  EXPECT_TRUE(http.closes);
}

TEST(BenchWire, HttpAnswersAreJudgedByTheirBody) {
  const auto answer = [](const std::string& body) {
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  EXPECT_EQ(read_reply(BenchKind::kHttp, answer(R"({"allowed":true})")).outcome, Outcome::kAllowed);
  EXPECT_EQ(read_reply(BenchKind::kHttp, answer(R"({"allowed": false})")).outcome, Outcome::kDenied);
  EXPECT_EQ(read_reply(BenchKind::kHttp, answer("hello")).outcome, Outcome::kOther);
}

TEST(BenchWire, AnswersMayComeByteByByte) {
  const std::pair<BenchKind, std::string> answers[] = {
      {BenchKind::kThrottle, "*5\r\n:1\r\n:16\r\n:0\r\n:3\r\n:2\r\n"},
      {BenchKind::kCheck, "*2\r\n:1\r\n*1\r\n$2\r\nok\r\n"},
      {BenchKind::kThrottle, "$-1\r\n"},
      {BenchKind::kHttp, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"allowed\":true}"}};
  for (const auto& [kind, text] : answers) {
    for (std::size_t size = 0; size < text.size(); ++size) {
      EXPECT_EQ(read_reply(kind, std::string_view(text).substr(0, size)).outcome, Outcome::kMore) << text << size;
    }
    EXPECT_EQ(read_reply(kind, text).size, text.size());
  }
}

TEST(BenchWire, WhatIsNoAnswerIsGarbage) {
  for (const char* text : {"hello\r\n", "*x\r\n", ":1\n", "*99999999\r\n", "$9223372036854775807\r\n",
                           "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"}) {
    EXPECT_EQ(read_reply(BenchKind::kThrottle, text).outcome, Outcome::kGarbage) << text;
  }
  for (const char* text : {"SSH-2.0\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
                           "HTTP/1.1 2\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    EXPECT_EQ(read_reply(BenchKind::kHttp, text).outcome, Outcome::kGarbage) << text;
  }
}

}  // namespace
}  // namespace headgate::cli
