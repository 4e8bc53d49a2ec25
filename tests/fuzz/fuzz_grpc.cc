// Any bytes as what an HTTP/2 client sends to the gRPC port, whole and in pieces: the service gets the same calls,
// what goes back is well formed, and no peer makes the session write or stay without bound.
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/grpc_service.h"
#include "support/sessions.h"

namespace {

using namespace headgate;
using namespace std::chrono_literals;
using test::check;

constexpr std::size_t kMaxFrame = 16'384;  // of those that the session sends, without its head
constexpr std::size_t kFrameHead = 9;
// The preface and SETTINGS that set nothing.
constexpr std::string_view kBeginning{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33};

// Notes what the service is asked.
class Witness final : public net::GrpcHandler {
 public:
  explicit Witness(const net::GrpcLimits& limits) : limits_(limits) {}

  void call(const net::GrpcCall& call, net::GrpcAnswer& answer) noexcept override {
    check(call.message.size() <= limits_.max_message);
    std::size_t header_bytes = 0;
    for (const net::Header& header : call.metadata) {
      check(!header.name.empty() && header.name.front() != ':');
      header_bytes += header.name.size() + header.value.size();
    }
    check(header_bytes <= limits_.max_header_bytes);
    service().handler->call(call, answer);
    check(answer.status != net::GrpcStatus::kInternal);
    heard.emplace_back(call.path).append("\n").append(call.message);
  }

  std::vector<std::string> heard;

 private:
  static test::FuzzedService& service() {
    static test::FuzzedService service;
    return service;
  }

  const net::GrpcLimits limits_;
};

// Reads what the session has sent as a client does, and aborts where that is not what a client may expect.
class Client {
 public:
  Client() { check(nghttp2_hd_inflate_new(&inflater_) == 0); }
  ~Client() { nghttp2_hd_inflate_del(inflater_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void read(std::string_view bytes) {
    for (bool first = true; !bytes.empty(); first = false) {
      check(bytes.size() >= kFrameHead);
      const std::size_t size = number(bytes.substr(0, 3));
      const auto type = static_cast<std::uint8_t>(bytes[3]);
      const auto flags = static_cast<std::uint8_t>(bytes[4]);
      const auto id = static_cast<std::int32_t>(number(bytes.substr(5, 4)));
      check(size <= kMaxFrame && bytes.size() >= kFrameHead + size);
      check(!first || type == NGHTTP2_SETTINGS);
      frame(type, flags, id, bytes.substr(kFrameHead, size));
      bytes.remove_prefix(kFrameHead + size);
    }
  }

 private:
  struct Stream {
    std::string status;       // HTTP's
    std::string grpc_status;  // empty: not said
    std::string data;
    bool ended = false;
    bool reset = false;
  };

  static std::size_t number(std::string_view bytes) {
    std::size_t value = 0;
    for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  }

  void frame(std::uint8_t type, std::uint8_t flags, std::int32_t id, std::string_view payload) {
    const bool of_stream = type == NGHTTP2_HEADERS || type == NGHTTP2_DATA || type == NGHTTP2_RST_STREAM;
    if (!of_stream) {
      check(type == NGHTTP2_SETTINGS || type == NGHTTP2_PING || type == NGHTTP2_GOAWAY ||
            type == NGHTTP2_WINDOW_UPDATE);
      check(id == 0 || type == NGHTTP2_WINDOW_UPDATE);
      return;
    }
    check(id % 2 == 1);
    Stream& stream = streams_[id];
    check(!stream.reset);
    if (type == NGHTTP2_RST_STREAM) {
      stream.reset = true;
      return;
    }
    check(!stream.ended);
    if (type == NGHTTP2_DATA) {
      check(flags == 0 && stream.status == "200");  // a status always comes behind it
      stream.data += payload;
      return;
    }
    check((flags & ~NGHTTP2_FLAG_END_STREAM) == NGHTTP2_FLAG_END_HEADERS);
    inflate(payload, stream);
    stream.ended = (flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (stream.ended) check_end(stream);
  }

  void inflate(std::string_view block, Stream& stream) {
    while (true) {
      nghttp2_nv pair{};
      int flags = 0;
      const ssize_t taken = nghttp2_hd_inflate_hd2(
          inflater_, &pair, &flags, reinterpret_cast<const std::uint8_t*>(block.data()), block.size(), 1);
      check(taken >= 0);
      block.remove_prefix(static_cast<std::size_t>(taken));
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
      check((flags & NGHTTP2_HD_INFLATE_EMIT) != 0);
      const std::string_view name(reinterpret_cast<const char*>(pair.name), pair.namelen);
      const std::string_view value(reinterpret_cast<const char*>(pair.value), pair.valuelen);
      std::string* into = name == ":status" ? &stream.status : name == "grpc-status" ? &stream.grpc_status : nullptr;
      if (into == nullptr) continue;
      check(into->empty());
      *into = value;
    }
    check(block.empty());
    nghttp2_hd_inflate_end_headers(inflater_);
  }

  static void check_end(const Stream& stream) {
    if (stream.status != "200") {
      check((stream.status == "405" || stream.status == "415") && stream.data.empty() && stream.grpc_status.empty());
      return;
    }
    check(!stream.grpc_status.empty());
    int messages = 0;
    for (std::string_view rest = stream.data; !rest.empty(); ++messages) {
      check(rest.size() >= 5 && rest[0] == 0);
      const std::size_t size = number(rest.substr(1, 4));
      check(rest.size() >= 5 + size);
      rest.remove_prefix(5 + size);
    }
    check(messages <= 2 && (messages > 0 || stream.grpc_status != "0"));
  }

  nghttp2_hd_inflater* inflater_ = nullptr;
  std::map<std::int32_t, Stream> streams_;
};

void check_sent(std::string_view sent) { Client().read(sent); }

// Once closed it is silent, whatever comes.
void check_closed(net::Session& session, Nanos now) {
  check(session.close);
  session.out.clear();
  session.receive(kBeginning, now);
  session.tick(now + 1h);
  check(session.close && session.out.empty());
}

// One may be closed before it has heard what the other has: pieces that are answered at once leave less behind, so that
// limits are met later, and streams that are gone are not those that are still there.
void check_alike(const std::vector<std::string>& some, const std::vector<std::string>& others, bool to_the_end) {
  const std::size_t both = std::min(some.size(), others.size());
  check(std::equal(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(both), others.begin()));
  check(!to_the_end || some.size() == others.size());
}

void whole_and_in_pieces(std::string_view bytes, std::size_t piece) {
  const net::GrpcLimits limits;
  const net::Peer peer;
  Witness of_whole(limits);
  test::Hand whole(net::make_grpc_session(of_whole, peer, limits));
  whole.receive(bytes);
  Witness of_pieces(limits);
  test::Hand pieces(net::make_grpc_session(of_pieces, peer, limits));
  do {
    pieces.receive(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  } while (!bytes.empty());
  check_alike(of_whole.heard, of_pieces.heard, !whole.closed && !pieces.closed);
  check(whole.closed || pieces.closed || whole.session().midway() == pieces.session().midway());
  for (test::Hand* hand : {&whole, &pieces}) {
    check_sent(hand->sent);
    if (hand->closed) check_closed(hand->session(), Nanos{1});
  }
}

// A peer that reads only when it must, over limits that are soon met, while time passes; in the end it falls silent,
// and is not waited for.
void reluctantly(std::string_view bytes, std::size_t piece, bool drains) {
  net::GrpcLimits limits;
  limits.max_message = 64;
  limits.max_pending = 100;
  limits.max_concurrent_streams = 3;
  limits.max_resets_per_second = 5;
  limits.max_header_bytes = 500;
  limits.max_backlog = 300;
  const net::Peer peer;
  Witness witness(limits);
  const auto session = net::make_grpc_session(witness, peer, limits);
  std::string sent;
  Nanos now{1s};
  // What was begun within the bound may go beyond it by one frame; with such limits there are none larger.
  const auto bounded = [&] { check(session->out.size() <= limits.max_backlog + 1024); };
  const auto take_all = [&] {
    for (int rounds = 0; !session->out.empty(); ++rounds) {
      check(rounds < 10'000);
      sent += std::exchange(session->out, {});
      session->sent();
      bounded();
    }
  };
  while (!bytes.empty() && !session->close) {
    const std::string part(bytes.substr(0, piece));
    bytes.remove_prefix(part.size());
    session->receive(part, now);
    bounded();
    session->tick(now += 300ms);
    bounded();
    if (session->paused) take_all();
  }
  if (drains && !session->close) session->drain();
  take_all();
  for (const Nanos later :
       {Nanos{1s}, limits.request_within, limits.ping_every, limits.pong_within, limits.ping_every}) {
    session->tick(now += later);
    bounded();
    take_all();
  }
  check_sent(sent);
  check_closed(*session, now);
}

}  // namespace

// A byte for how: 5 bits for the size of the pieces, one that says that the beginning of the connection is among the
// bytes, too, one for a peer that reads reluctantly and sends large pieces, and one for a server that ends meanwhile.
// Then the bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 4096) return 0;
  const unsigned how = data[0];
  std::string bytes((how & 32U) != 0 ? std::string_view() : kBeginning);
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = how % 32 + 1;
  if ((how & 64U) != 0) {
    reluctantly(bytes, piece * 64, (how & 128U) != 0);
  } else {
    whole_and_in_pieces(bytes, piece);
  }
  return 0;
}
