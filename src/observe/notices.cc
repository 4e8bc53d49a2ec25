#include "observe/notices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/json_pen.h"
#include "engine/check_json.h"
#include "observe/log.h"
#include "observe/one_line.h"
#include "observe/repeats.h"

namespace headgate::observe {
namespace {

void append_text(std::string_view name, std::string_view text, std::string& out) {
  if (text.empty()) return;
  fmt::format_to(std::back_inserter(out), ",\"{}\":", name);
  append_quoted(text, out);
}

}  // namespace

std::string to_json(const Notice& notice) {
  std::string out = fmt::format("{{\"id\":{},\"kind\":", notice.id);
  append_quoted(notice.kind, out);
  fmt::format_to(std::back_inserter(out), ",\"time\":{}", notice.time.count() / 1'000'000);
  append_text("agent", notice.agent, out);
  append_text("operation", notice.operation, out);
  append_text("policy_id", notice.policy_id, out);
  append_text("to", notice.to, out);
  append_text("action", notice.action, out);
  append_text("text", notice.text, out);
  out += ",\"value\":";
  base::append_json_number(notice.value, out);
  if (notice.count > 1) fmt::format_to(std::back_inserter(out), ",\"count\":{}", notice.count);
  out += '}';
  return out;
}

bool is_everyday(std::string_view kind) noexcept {
  constexpr std::array<std::string_view, 5> kEveryday{"violation", "exceeded", "monitored", "warning", "lease_expired"};
  return std::find(kEveryday.begin(), kEveryday.end(), kind) != kEveryday.end();
}

bool counts_repeats(std::string_view kind) noexcept {
  return kind == "escalation" || kind == "overrun" || kind == "cells_full";
}

std::string condition_of(const Notice& notice) {
  // Which cells run out, those of callers or all of them, is in the text alone where no agent is to blame.
  const std::string_view which = notice.kind == "cells_full" && notice.agent.empty() ? notice.text : notice.to;
  return fmt::format("{}\n{}\n{}\n{}", notice.kind, notice.agent, notice.policy_id, which);
}

std::vector<std::string> notice_kinds() {
  // The server's own. A new kind is added here, so that webhook.kinds can name it.
  std::vector<std::string> kinds{"store_down",   "store_up",       "store_problem", "store_stand_in",  "clock_skew",
                                 "clock_agrees", "ledger_down",    "ledger_up",     "database_down",   "database_up",
                                 "disk_low",     "disk_enough",    "quota_high",    "quota_throttled", "quota_spike",
                                 "command_long", "command_failed", "memory",        "control_conflict"};
  for (int kind = 0; kind <= static_cast<int>(engine::Event::Kind::kReload); ++kind) {
    kinds.emplace_back(engine::to_string(static_cast<engine::Event::Kind>(kind)));
  }
  return kinds;
}

struct Notices::Impl {
  static bool fits(std::size_t queued, std::string_view kind) noexcept {
    return queued < kMostQueued || (queued < kMostQueued + kKeptFree && !is_everyday(kind));
  }

  // Looked at first without the lock, so that a flood which is dropped anyway costs next to nothing.
  [[nodiscard]] bool fits_now(std::string_view kind) noexcept {
    if (counts_repeats(kind) || fits(size.load(std::memory_order_relaxed), kind)) return true;
    dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  void push(Notice notice) {
    bool wake = false;
    {
      const std::lock_guard guard(mutex);
      // Of each condition there is at most one in the queue, so that a flood of one leaves room for all others.
      if (counts_repeats(notice.kind) && !repeats.arrives(notice)) return;
      if (!fits(queue.size(), notice.kind)) {
        if (counts_repeats(notice.kind)) (void)repeats.leaves(notice);
        dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      notice.id = ++last_id;
      wake = queue.empty();
      queue.push_back(std::move(notice));
      size.store(queue.size(), std::memory_order_relaxed);
    }
    if (wake) arrived.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      arrived.wait(lock, [&] { return stop || !queue.empty(); });
      if (queue.empty()) return;  // told to stop, and everything is told
      Notice notice = std::move(queue.front());
      queue.pop_front();
      bool again = false;
      if (counts_repeats(notice.kind)) {
        const Repeats::Turn turn = repeats.leaves(notice);
        notice.count = turn.count;
        again = turn.again;
      }
      size.store(queue.size(), std::memory_order_relaxed);
      lock.unlock();
      tell_sinks(notice, again);
      lock.lock();
      told_id = notice.id;
      told.fetch_add(1, std::memory_order_relaxed);
      all_told.notify_all();
    }
  }

  void tell_sinks(const Notice& notice, bool again) {
    const std::lock_guard guard(sinks_mutex);
    for (const auto& sink : sinks) {
      try {
        again ? sink->on_repeat(notice) : sink->on_notice(notice);
      } catch (const std::exception& e) {  // one sink's trouble is not the others'
        log(LogLevel::kError, "a listener failed", {{"kind", notice.kind}, {"why", e.what()}});
      }
    }
  }

  std::mutex mutex;
  std::condition_variable arrived;
  std::condition_variable all_told;
  std::deque<Notice> queue;
  Repeats repeats;
  std::uint64_t last_id = 0;
  std::uint64_t told_id = 0;
  bool stop = false;
  std::atomic<std::size_t> size{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> told{0};

  std::mutex sinks_mutex;
  std::vector<std::shared_ptr<NoticeSink>> sinks;
  std::thread thread;
};

Notices::Notices() : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([this] { impl_->run(); });
}

Notices::~Notices() {
  {
    const std::lock_guard guard(impl_->mutex);
    impl_->stop = true;
  }
  impl_->arrived.notify_one();
  impl_->thread.join();
}

void Notices::add(std::shared_ptr<NoticeSink> sink) {
  const std::lock_guard guard(impl_->sinks_mutex);
  impl_->sinks.push_back(std::move(sink));
}

void Notices::on_event(const engine::Event& event) noexcept {
  if (!impl_->fits_now(engine::to_string(event.kind))) return;
  try {
    Notice notice;
    notice.kind = engine::to_string(event.kind);
    notice.time = event.time;
    notice.agent = event.agent;
    notice.operation = event.operation;
    notice.policy_id = event.policy_id;
    notice.to = event.to;
    notice.action = event.action;
    notice.text = event.text;
    notice.value = event.value;
    impl_->push(std::move(notice));
  } catch (...) {  // no memory
    impl_->dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

void Notices::tell(Notice notice) noexcept {
  if (!impl_->fits_now(notice.kind)) return;
  try {
    impl_->push(std::move(notice));
  } catch (...) {
    impl_->dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

std::uint64_t Notices::dropped() const noexcept { return impl_->dropped.load(std::memory_order_relaxed); }
std::uint64_t Notices::told() const noexcept { return impl_->told.load(std::memory_order_relaxed); }

void Notices::flush() {
  std::unique_lock lock(impl_->mutex);
  const std::uint64_t last = impl_->last_id;
  impl_->all_told.wait(lock, [&] { return impl_->told_id >= last; });
}

}  // namespace headgate::observe
