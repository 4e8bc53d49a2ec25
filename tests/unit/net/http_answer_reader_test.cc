#include "net/http_answer_reader.h"

#include <gtest/gtest.h>

namespace headgate::net {
namespace {

using State = HttpAnswerReader::State;

constexpr std::size_t kMostBytes = 1000;

// Fed byte by byte and all at once, an answer must read the same.
void expect_answer(std::string_view bytes, int status, const std::string& body, bool reusable) {
  HttpAnswerReader whole(kMostBytes);
  ASSERT_EQ(whole.feed(bytes), State::kWhole) << bytes;
  HttpAnswerReader slow(kMostBytes);
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    ASSERT_EQ(slow.feed(bytes.substr(i, 1)), State::kMore) << bytes.substr(0, i + 1);
  }
  ASSERT_EQ(slow.feed(bytes.substr(bytes.size() - 1)), State::kWhole) << bytes;
  for (HttpAnswerReader* reader : {&whole, &slow}) {
    EXPECT_EQ(reader->status(), status);
    EXPECT_EQ(reader->body(), body);
    EXPECT_EQ(reader->reusable(), reusable);
  }
}

TEST(HttpAnswerReader, ReadsABodyOfAKnownLength) {
  expect_answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true);
  expect_answer("HTTP/1.1 404 Not Found\r\ncontent-length:0\r\nConnection: close\r\n\r\n", 404, "", false);
  expect_answer("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true);
}

TEST(HttpAnswerReader, FindsTheFirstHeaderOfAName) {
  HttpAnswerReader reader(kMostBytes);
  EXPECT_EQ(reader.header("X"), "");
  ASSERT_EQ(reader.feed("HTTP/1.1 200 OK\r\nX-Other: a: b\r\nx-next-cursor:  17-4 \r\nContent-Length: 0\r\n\r\n"),
            State::kWhole);
  EXPECT_EQ(reader.header("X-Next-Cursor"), "17-4");
  EXPECT_EQ(reader.header("X-Other"), "a: b");
  EXPECT_EQ(reader.header("X-Next"), "");
}

TEST(HttpAnswerReader, ReadsChunks) {
  expect_answer(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: "
      "x\r\n\r\n",
      200, "hello0123456789", true);
}

TEST(HttpAnswerReader, PassesOverWhatComesBeforeTheAnswer) {
  expect_answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", true);
}

TEST(HttpAnswerReader, AnAnswerWithoutALengthEndsWithTheConnection) {
  HttpAnswerReader reader(kMostBytes);
  EXPECT_EQ(reader.feed("HTTP/1.0 200 OK\r\n\r\nall of"), State::kMore);
  EXPECT_EQ(reader.feed(" it"), State::kMore);
  EXPECT_EQ(reader.end(), State::kWhole);
  EXPECT_EQ(reader.body(), "all of it");
  EXPECT_FALSE(reader.reusable());
}

TEST(HttpAnswerReader, WhatIsCutOffOrNoHttpIsBroken) {
  HttpAnswerReader cut(kMostBytes);
  EXPECT_EQ(cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), State::kMore);
  EXPECT_EQ(cut.end(), State::kBroken);
  for (const char* bytes :
       {"SSH-2.0-x\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 -12\r\n\r\n",
        "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n"}) {
    HttpAnswerReader reader(kMostBytes);
    EXPECT_EQ(reader.feed(bytes), State::kBroken) << bytes;
  }
}

TEST(HttpAnswerReader, KeepsToItsBounds) {
  HttpAnswerReader body(kMostBytes);
  EXPECT_EQ(body.feed("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + std::string(1500, 'x')), State::kTooLong);
  EXPECT_EQ(body.status(), 200);
  HttpAnswerReader chunked(kMostBytes);
  EXPECT_EQ(chunked.feed("HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x')),
            State::kTooLong);
  EXPECT_EQ(chunked.status(), 500);
  HttpAnswerReader head(kMostBytes);
  EXPECT_EQ(head.feed("HTTP/1.1 200 OK\r\nX: " + std::string(HttpAnswerReader::kMostHead, 'x')), State::kBroken);
}

TEST(HttpAnswerReader, EndsAnAnswerThatOnlyEverBegins) {
  HttpAnswerReader interim(kMostBytes);
  State state = State::kMore;
  for (std::size_t i = 0; i < HttpAnswerReader::kMostHead && state == State::kMore; ++i) {
    state = interim.feed("HTTP/1.1 100 Continue\r\n\r\n");
  }
  EXPECT_EQ(state, State::kBroken);
  HttpAnswerReader trailers(kMostBytes);
  state = trailers.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
  for (std::size_t i = 0; i < HttpAnswerReader::kMostHead && state == State::kMore; ++i)
    state = trailers.feed("a: b\r\n");
  EXPECT_EQ(state, State::kBroken);
}

}  // namespace
}  // namespace headgate::net
