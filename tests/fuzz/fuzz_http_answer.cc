// Any bytes as an answer to our HTTP client: whole and in pieces they are read alike, within the bounds
// of head and body.
#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/steps.h"
#include "net/http_answer_reader.h"

namespace {

using namespace headgate;
using net::HttpAnswerReader;
using test::check_that;

constexpr std::size_t kMostBytes = 16 << 10;
constexpr std::size_t kMostBody = 1000;

struct Read {
  HttpAnswerReader reader{kMostBody};
  HttpAnswerReader::State state = HttpAnswerReader::State::kMore;
};

void read(Read& read, std::string_view bytes, std::size_t piece) {
  while (read.state == HttpAnswerReader::State::kMore && !bytes.empty()) {
    read.state = read.reader.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (read.state == HttpAnswerReader::State::kMore) read.state = read.reader.end();
}

}  // namespace

// A byte for the size of the pieces, then what the server sends before it closes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > kMostBytes) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Read whole;
  Read pieces;
  read(whole, bytes, bytes.size());
  read(pieces, bytes, data[0] % 64 + 1);
  check_that(whole.state == pieces.state, "whole and in pieces it ends alike");
  check_that(whole.state != HttpAnswerReader::State::kMore, "an answer ends with its connection");
  if (whole.state != HttpAnswerReader::State::kWhole) return 0;
  check_that(whole.reader.status() == pieces.reader.status(), "the status is the same");
  check_that(whole.reader.body() == pieces.reader.body(), "the body is the same");
  check_that(whole.reader.header("content-type") == pieces.reader.header("content-type"), "a header is the same");
  check_that(whole.reader.header("content-type").size() <= HttpAnswerReader::kMostHead, "the head keeps its bound");
  check_that(whole.reader.body().size() <= kMostBody, "the body keeps its bound");
  check_that(whole.reader.status() >= 200 && whole.reader.status() <= 999, "a status has three digits");
  // What is left over on the connection is seen at the latest when it is used again.
  check_that(pieces.reader.reusable() || !whole.reader.reusable(), "what comes after the answer spoils the connection");
  return 0;
}
