// Webhooks against a real server over real sockets. Back-off is injected, so that no test waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/hmac.h>

#include <fmt/format.h>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "observe/log.h"
#include "observe/notices.h"
#include "support/tiny_http.h"

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;

class WebhookThread : public testing::Test {
 protected:
  WebhookThread() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    set_up_log({.level = LogLevel::kOff});
  }
  ~WebhookThread() override { set_up_log({}); }

  WebhookOptions options_for(const std::string& url) {
    WebhookOptions options;
    options.url = url;
    options.secret = "s3cret";
    options.timeout = 20s;
    options.back_off = [this](int failures) {
      last_failures = failures;
      return 0ns;
    };
    return options;
  }
  static std::shared_ptr<WebhookSink> make(const WebhookOptions& options) {
    auto made = make_webhook_sink(options);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    return *made;
  }
  static Notice notice(std::uint64_t id, std::string kind = "emergency") {
    Notice made;
    made.id = id;
    made.kind = std::move(kind);
    made.text = "on";
    return made;
  }
  // Waits until nothing is queued or on its way.
  static WebhookCounts settled(const WebhookSink& sink) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (sink.counts().queued != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return sink.counts();
  }

  std::atomic<int> last_failures{0};
};

std::string hmac(const std::string& secret, const std::string& text) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &length);
  std::string hex = "sha256=";
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", mac[i]);
  return hex;
}

TEST_F(WebhookThread, PostsSignedJson) {
  test::TinyHttp server({204});
  const auto sink = make(options_for(server.url()));
  sink->on_notice(notice(3));
  const auto request = server.wait_for(1)[0];
  EXPECT_TRUE(request.head.starts_with("POST /hook HTTP/1.1\r\n")) << request.head;
  EXPECT_EQ(request.header("Content-Type"), "application/json");
  EXPECT_EQ(request.header("X-Headgate-Event"), "emergency");
  EXPECT_TRUE(request.header("X-Headgate-Delivery").ends_with("-3")) << request.head;
  EXPECT_EQ(request.body, to_json(notice(3)));
  const std::string timestamp = request.header("X-Headgate-Timestamp");
  EXPECT_GT(std::stoll(timestamp), 1'700'000'000);
  EXPECT_EQ(request.header("X-Headgate-Signature"), hmac("s3cret", timestamp + "." + request.body));
  EXPECT_EQ(settled(*sink).delivered, 1U);
}

TEST_F(WebhookThread, DeliversAfterFailingTwice) {
  test::TinyHttp server({500, 429, 200});
  const auto sink = make(options_for(server.url()));
  sink->on_notice(notice(1));
  sink->on_notice(notice(2));
  const auto requests = server.wait_for(4);
  EXPECT_EQ(requests[0].body, requests[1].body);
  EXPECT_EQ(requests[0].body, requests[2].body);
  EXPECT_EQ(requests[0].header("X-Headgate-Delivery"), requests[2].header("X-Headgate-Delivery"));
  EXPECT_NE(requests[3].header("X-Headgate-Delivery"), requests[2].header("X-Headgate-Delivery"));
  EXPECT_EQ(last_failures, 2);
  const WebhookCounts counts = settled(*sink);
  EXPECT_EQ(counts.delivered, 2U);
  EXPECT_EQ(counts.failed, 0U);
}

TEST_F(WebhookThread, GivesUpAfterAllAttempts) {
  test::TinyHttp server({503});
  WebhookOptions options = options_for(server.url());
  options.attempts = 3;
  const auto sink = make(options);
  sink->on_notice(notice(1));
  EXPECT_EQ(server.wait_for(3).size(), 3U);
  const WebhookCounts counts = settled(*sink);
  EXPECT_EQ(counts.failed, 1U);
  EXPECT_EQ(server.wait_for(3).size(), 3U);
}

TEST_F(WebhookThread, DoesNotRepeatWhatWasRefusedNorFollowRedirects) {
  for (const int status : {400, 404, 302}) {
    test::TinyHttp server({status});
    const auto sink = make(options_for(server.url()));
    sink->on_notice(notice(1));
    EXPECT_EQ(settled(*sink).failed, 1U) << status;
    EXPECT_EQ(server.wait_for(1).size(), 1U) << status;
  }
}

TEST_F(WebhookThread, RetriesWhereNobodyListens) {
  WebhookOptions options = options_for("http://127.0.0.1:1/");
  options.attempts = 2;
  const auto sink = make(options);
  sink->on_notice(notice(1));
  EXPECT_EQ(settled(*sink).failed, 1U);
  EXPECT_EQ(last_failures, 1);
}

TEST_F(WebhookThread, SendsOnlyTheKindsAskedForAndByDefaultNoEverydayOnes) {
  test::TinyHttp server({200});
  WebhookOptions options = options_for(server.url());
  auto sink = make(options);
  for (const char* kind : {"violation", "warning", "exceeded", "monitored", "lease_expired", "sustained_abuse"}) {
    sink->on_notice(notice(1, kind));
  }
  EXPECT_EQ(settled(*sink).delivered, 1U);
  EXPECT_EQ(server.wait_for(1).back().header("X-Headgate-Event"), "sustained_abuse");
  options.kinds = {"violation"};
  sink = make(options);
  sink->on_notice(notice(1, "sustained_abuse"));
  sink->on_notice(notice(2, "violation"));
  EXPECT_EQ(settled(*sink).delivered, 1U);
  EXPECT_EQ(server.wait_for(2).back().header("X-Headgate-Event"), "violation");
}

TEST_F(WebhookThread, DropsTheOldestWhenTheQueueIsFullAndEndsAtOnceWithAnAnswerOutstanding) {
  test::TinyHttp server({0});
  WebhookOptions options = options_for(server.url());
  options.queue = 2;
  options.timeout = 290s;
  auto sink = make(options);
  sink->on_notice(notice(1));
  (void)server.wait_for(1);
  for (std::uint64_t id = 2; id <= 5; ++id) sink->on_notice(notice(id));
  const WebhookCounts counts = sink->counts();
  EXPECT_EQ(counts.dropped, 2U);
  EXPECT_EQ(counts.queued, 3U);
  sink.reset();  // within the time of a test, not of a time-out
}

TEST_F(WebhookThread, EndsAtOnceWhileBackingOff) {
  test::TinyHttp server({500});
  WebhookOptions options = options_for(server.url());
  std::atomic<bool> backing_off{false};
  options.back_off = [&](int) {
    backing_off = true;
    return 1h;
  };
  auto sink = make(options);
  sink->on_notice(notice(1));
  (void)server.wait_for(1);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!backing_off && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  sink.reset();
}

TEST(Webhook, RefusesOptionsThatCannotWork) {
  const auto message = [](const auto& change) {
    WebhookOptions options;
    options.url = "http://127.0.0.1/";
    change(options);
    auto made = make_webhook_sink(options);
    return made ? "made" : made.error().message;
  };
  EXPECT_EQ(message([](auto&) {}), "made");
  EXPECT_EQ(message([](auto& o) { o.url = "ftp://x"; }), "webhook.url must begin with http:// or https://");
  EXPECT_EQ(message([](auto& o) { o.attempts = 0; }), "webhook.attempts must be between 1 and 20, got 0");
  EXPECT_EQ(message([](auto& o) { o.timeout = 0ns; }), "webhook.timeout must be between 1ms and 5m");
  EXPECT_EQ(message([](auto& o) { o.queue = 0; }), "webhook.queue must be at least 1");
}

}  // namespace
}  // namespace headgate::observe
