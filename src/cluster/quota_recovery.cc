#include "cluster/quota_recovery.h"

#include <array>
#include <functional>
#include <span>
#include <utility>

#include "observe/log.h"

namespace headgate::cluster {
namespace {

using observe::log;
using observe::LogLevel;
using store::redis::Command;
using store::redis::Reply;

// KEYS: whose turn it is. Has it last ARGV[2] milliseconds from now if it is still that of ARGV[1].
const store::redis::Script& keep_turn_script() {
  static const store::redis::Script kScript = store::redis::make_script(R"lua(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
)lua");
  return kScript;
}

// False: there was no answer. `read` sees the one there was.
bool hear(store::redis::Caller& redis, Command command, const std::function<void(const Reply&)>& read) {
  bool answered = false;
  ask_and_wait(redis, std::move(command), [&](const Result<Reply>& reply) {
    answered = reply.has_value();
    if (reply) read(*reply);
  });
  return answered;
}

Command saying(std::span<const std::string_view> words) {
  Command command;
  store::redis::append_words(words, command.wire);
  command.slot = store::redis::slot_of(words[1]);  // the key
  return command;
}

}  // namespace

QuotaRecovery::QuotaRecovery(store::redis::Caller& redis, service::Quotas& quotas, const Options& options)
    : redis_(redis),
      quotas_(quotas),
      whole_key_(options.prefix + "{control}:quotas"),
      turn_key_(options.prefix + "{control}:recovering"),
      node_(options.node) {}

std::optional<bool> QuotaRecovery::is_whole() {
  bool whole = false;
  const std::array<std::string_view, 2> words{"GET", whole_key_};
  if (!hear(redis_, saying(words), [&](const Reply& reply) { whole = !reply.is_nil(); })) return std::nullopt;
  return whole;
}

bool QuotaRecovery::take_turn() {
  const std::string lapses = std::to_string(kTurn / std::chrono::milliseconds{1});
  const std::array<std::string_view, 6> words{"SET", turn_key_, node_, "NX", "PX", lapses};
  bool taken = false;
  (void)hear(redis_, saying(words), [&](const Reply& reply) { taken = reply.is_text(); });
  if (taken) turn_kept_ = store::redis::steady_now();
  return taken;
}

bool QuotaRecovery::keep_turn(Nanos for_this_long) {
  const store::redis::Script& script = keep_turn_script();
  const std::string lapses = std::to_string(for_this_long / std::chrono::milliseconds{1});
  Command command;
  append_call(script, std::array<std::string_view, 1>{turn_key_}, std::array<std::string_view, 2>{node_, lapses},
              command.wire);
  command.slot = store::redis::slot_of(turn_key_);
  command.script = &script;
  bool kept = false;
  (void)hear(redis_, std::move(command),
             [&](const Reply& reply) { kept = reply.is_integer() && reply.integer() == 1; });
  return kept;
}

bool QuotaRecovery::may_go_on() {
  if (ending_) return false;
  const Nanos now = store::redis::steady_now();
  if (now - turn_kept_ < kTurn / 4) return true;
  if (!keep_turn(kTurn)) return false;
  turn_kept_ = now;
  return true;
}

void QuotaRecovery::step() {
  const std::optional<bool> whole = is_whole();
  if (!whole || (*whole && done_once_) || ending_ || !take_turn()) return;
  const Result<std::size_t> restored = quotas_.restore([this] { return may_go_on(); });
  if (restored) {
    const std::array<std::string_view, 3> words{"SET", whole_key_, node_};
    done_once_ = hear(redis_, saying(words), [](const Reply&) {});
    failed_ = false;
    if (!*whole && *restored > 0) {
      log(LogLevel::kWarn, "Redis had not what was charged to quotas; it was put back from the ledger",
          {{"users_and_types", static_cast<std::int64_t>(*restored)}});
    }
  } else if (!std::exchange(failed_, true)) {
    log(LogLevel::kError, "what was charged to quotas could not be put back into Redis; it is tried again every second",
        {{"problem", restored.error().message}});
  }
  (void)keep_turn(Nanos{0});
}

}  // namespace headgate::cluster
