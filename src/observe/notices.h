// What the server has to tell besides its answers, handed from the threads that check to those who listen.
//
// An alert manager, a dashboard, a WebSocket of the agent concerned: each is one more NoticeSink.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/event.h"
#include "headgate/result.h"

namespace headgate::observe {

// An engine::Event that owns its text, or one of the server's own.
struct Notice {
  std::uint64_t id = 0;  // counts up
  std::string kind{};    // "violation", "escalation", "emergency", "store_down", ...
  Nanos time{0};         // wall clock
  std::string agent{};
  std::string operation{};
  std::string policy_id{};
  std::string to{};
  std::string action{};  // of an "exceeded": "warn" or "log"
  std::string text{};
  double value = 0;
  std::uint64_t count = 1;  // how often its condition came, where repeats are counted
};
// One JSON object, as webhooks and /api/events send it; its time in epoch milliseconds, without the texts that are
// empty.
[[nodiscard]] std::string to_json(const Notice& notice);

// Whether notices of that kind are what single checks bring about: "violation", "exceeded", "monitored", "warning",
// "lease_expired". There may be very many of them.
[[nodiscard]] bool is_everyday(std::string_view kind) noexcept;

// Whether notices of that kind are deduplicated: "escalation", "overrun", "cells_full". The first of a condition
// reaches sinks as on_notice(), the others within the cool-down as on_repeat().
[[nodiscard]] bool counts_repeats(std::string_view kind) noexcept;
inline constexpr Nanos kRepeatCoolDown = std::chrono::minutes{5};
// What makes two notices the same: kind, agent, policy and target. The operation is left out, since an agent can make
// up any number of operations and each would be another condition.
[[nodiscard]] std::string condition_of(const Notice& notice);

// All kinds there are: the engine's, and the server's own.
[[nodiscard]] std::vector<std::string> notice_kinds();

// Called by the notices' own thread, one notice at a time.
class NoticeSink {
 public:
  virtual ~NoticeSink() = default;
  virtual void on_notice(const Notice& notice) = 0;
  // The same condition again, too soon to be told again; `count` says how often by now. Not each of them: what comes
  // while one is on its way is counted in.
  virtual void on_repeat(const Notice& /*notice*/) {}
};

// Safe for concurrent use. on_event() never waits for a sink: what does not fit the queue is dropped and counted. There
// is room that everyday notices do not get, so that a flood of them takes nothing else along.
class Notices final : public engine::EventSink {
 public:
  static constexpr std::size_t kMostQueued = 10'000;
  static constexpr std::size_t kKeptFree = 1'000;  // beyond that, for what is not everyday
  Notices();
  ~Notices() override;  // tells what is queued, then ends

  // From the next notice on.
  void add(std::shared_ptr<NoticeSink> sink);
  void on_event(const engine::Event& event) noexcept override;
  void tell(Notice notice) noexcept;
  [[nodiscard]] std::uint64_t dropped() const noexcept;
  [[nodiscard]] std::uint64_t told() const noexcept;
  // Returns when everything told so far has reached the sinks.
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes each to the log: what a person should look at as a warning, what changes as information, and what is everyday
// for debugging only. What a policy with `action: log` admits past its limit is information: of each agent and policy
// one line in ten seconds, which says how many were left out since the last.
[[nodiscard]] std::shared_ptr<NoticeSink> make_log_sink();

struct WebhookOptions {
  std::string url;     // http:// or https://
  std::string secret;  // of the HMAC-SHA256 in X-Headgate-Signature: "sha256=<hex>" over "<timestamp>.<body>"
  std::vector<std::string> kinds;  // empty: all that are not everyday
  int attempts = 5;                // with 1, 2, 4, ... seconds between them, and jitter
  Nanos timeout{std::chrono::seconds{5}};
  std::size_t queue = 1'000;  // the oldest is dropped when full, and counted
  // How long to wait after the n-th failure (from 1); none: 1, 2, 4, ... seconds, at most five minutes, half of it
  // by chance.
  std::function<Nanos(int failures)> back_off{};
};
struct WebhookCounts {
  std::uint64_t delivered = 0;
  std::uint64_t failed = 0;  // after all attempts
  std::uint64_t dropped = 0;
  std::uint64_t queued = 0;
};
// Posts each notice as JSON, in order, from a thread of its own, with
//   X-Headgate-Event      its kind
//   X-Headgate-Delivery   the same for every attempt at one notice
//   X-Headgate-Timestamp  Unix seconds of this attempt
//   X-Headgate-Signature  see WebhookOptions::secret; not without one
// Any 2xx is a delivery; 408, 429, 5xx and no answer are tried again; anything else is not. Redirects are not followed.
// Ends at once when it is destroyed: what is still queued counts as dropped.
class WebhookSink : public NoticeSink {
 public:
  [[nodiscard]] virtual WebhookCounts counts() const noexcept = 0;
};
[[nodiscard]] Result<std::shared_ptr<WebhookSink>> make_webhook_sink(const WebhookOptions& options);

}  // namespace headgate::observe
