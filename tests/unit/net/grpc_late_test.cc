// gRPC calls whose answers come later: each on its own, whatever becomes of the others.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "net/grpc.h"
#include "net/grpc_text.h"
#include "support/h2_client.h"

namespace headgate::net {
namespace {

using namespace std::chrono_literals;

// Puts every call off, and keeps what answers it.
class LateHandler final : public GrpcHandler {
 public:
  void call(const GrpcCall& call, GrpcAnswer& answer) noexcept override {
    if (call.message == "now") {
      answer.message = "at once";
      return;
    }
    later[std::string(call.message)] = call.context->later();
  }
  void answer(const std::string& which, const std::string& message) {
    GrpcAnswer made;
    made.message = message;
    later.at(which)->send(std::move(made));
  }
  std::map<std::string, std::shared_ptr<GrpcLater>> later;
};

class LateLink final : public Link {
 public:
  void post(std::function<void(Session&)> work) override { posted.push_back(std::move(work)); }
  std::vector<std::function<void(Session&)>> posted;
};

struct GrpcLateTest : testing::Test {
  LateHandler handler;
  std::shared_ptr<LateLink> link = std::make_shared<LateLink>();
  test::H2Client client;
  Peer peer;
  std::unique_ptr<Session> session = make_grpc_session(handler, peer);
  Nanos now{1s};

  GrpcLateTest() { session->link = link; }

  void exchange_late() {
    for (bool said = true; said;) {
      const std::string bytes = client.out();
      if (!bytes.empty()) session->receive(bytes, now);
      for (auto& work : std::exchange(link->posted, {})) work(*session);
      said = !bytes.empty() || !session->out.empty();
      const bool sent = !session->out.empty();
      client.in(std::exchange(session->out, {}));
      if (sent) session->sent();
    }
  }
  std::int32_t ask_late(const std::string& message, test::H2Client::Headers extra = {}) {
    test::H2Client::Headers headers = test::H2Client::grpc_headers("/test.Late/Say");
    for (auto& each : extra) headers.push_back(std::move(each));
    const auto prefix = grpc_prefix(static_cast<std::uint32_t>(message.size()));
    const std::int32_t id = client.request(headers, std::string(prefix.begin(), prefix.end()) + message);
    exchange_late();
    return id;
  }
  [[nodiscard]] std::string said(std::int32_t id) {
    const test::H2Client::Reply& reply = client.replies[id];
    return reply.data.size() > kGrpcPrefix ? reply.data.substr(kGrpcPrefix) : std::string();
  }
};

TEST_F(GrpcLateTest, CallsAreAnsweredInWhateverOrderTheirAnswersCome) {
  const std::int32_t first = ask_late("first");
  const std::int32_t second = ask_late("second");
  const std::int32_t at_once = ask_late("now");
  EXPECT_EQ(said(at_once), "at once");
  EXPECT_EQ(said(first) + said(second), "");
  handler.answer("second", "2");
  exchange_late();
  EXPECT_EQ(said(second), "2");
  EXPECT_EQ(client.replies[second].headers["grpc-status"], "0");
  EXPECT_FALSE(client.replies[first].closed);
  handler.answer("first", "1");
  exchange_late();
  EXPECT_EQ(said(first), "1");
}

TEST_F(GrpcLateTest, AnAnswerToACallThatWasCancelledGoesNowhere) {
  const std::int32_t gone = ask_late("gone");
  nghttp2_submit_rst_stream(client.h2(), NGHTTP2_FLAG_NONE, gone, NGHTTP2_CANCEL);
  exchange_late();
  const std::int32_t next = ask_late("next");
  handler.answer("gone", "for nobody");
  handler.answer("next", "2");
  exchange_late();
  EXPECT_EQ(said(gone), "");
  EXPECT_EQ(said(next), "2");
  EXPECT_FALSE(session->close);
}

TEST_F(GrpcLateTest, AnAnswerThatIsGivenUpSaysSo) {
  const std::int32_t id = ask_late("dropped");
  handler.later.clear();
  exchange_late();
  EXPECT_EQ(client.replies[id].headers["grpc-status"], "14");
}

TEST_F(GrpcLateTest, ACallThatWaitsEndsWithItsOwnDeadlineAndItsAnswerIsIgnored) {
  const std::int32_t id = ask_late("slow", {{"grpc-timeout", "500m"}});
  now += 1s;
  session->tick(now);
  exchange_late();
  EXPECT_EQ(client.replies[id].headers["grpc-status"], "4");
  handler.answer("slow", "too late");
  exchange_late();
  EXPECT_EQ(said(id), "");
}

TEST_F(GrpcLateTest, AServerThatGoesAwayWaitsForTheAnswersItOwes) {
  const std::int32_t id = ask_late("last");
  session->drain();
  exchange_late();
  EXPECT_FALSE(session->close);
  handler.answer("last", "good-bye");
  exchange_late();
  EXPECT_EQ(said(id), "good-bye");
}

TEST_F(GrpcLateTest, AnAnswerMayComeWhenTheConnectionIsGone) {
  (void)ask_late("orphan");
  session.reset();
  handler.answer("orphan", "for nobody");
  EXPECT_EQ(link->posted.size(), 1U) << "the link drops it";
}

}  // namespace
}  // namespace headgate::net
