// Cells in a Redis that several servers share. A charge list is one script and one round trip, judged and charged by
// the clock of Redis. In a cluster a charge list whose cells lie in several slots takes one script for each, and what
// was charged in one is given back if another has no room; after kNoteLasts also if the server that charged it is lost.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>

#include "store/redis/charge_codec.h"
#include "store/redis/charge_queue.h"
#include "store/redis/command.h"
#include "store/remote_store.h"

namespace headgate::store::redis {

// Safe for concurrent use. The caller must outlive the store, and the store every call made to it, which may be
// answered after its deadline: then what was charged comes back.
class RedisStore final : public RemoteStore {
 public:
  struct Options {
    std::string prefix = "headgate:";  // of all keys
    bool cluster = false;              // cells lie in slots, and a script reaches those of one only
    // Redis answers, but this cannot be counted there until an operator corrects it: a key that is not ours, a limit
    // that is too large. Told each time, from the thread that gets the answer. May be empty.
    std::function<void(const Error&)> on_fault{};
  };
  RedisStore(Caller& caller, Options options);

  void apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes, Done done) override;
  void refund(const Charge& charge, Nanos charged_at, RemoteStore::Told told) override;
  void release(const Charge& charge, LeaseId lease, RemoteStore::Told told) override;
  void renew(const Charge& charge, LeaseId lease, RemoteStore::Told told) override;

  // The same at an instant of the caller's choosing, in whole microseconds; 0: by the clock of Redis.
  void apply_at(Nanos now, std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes,
                Done done);
  void refund_at(Nanos now, const Charge& charge, Nanos charged_at, RemoteStore::Told told);
  void release_at(Nanos now, const Charge& charge, LeaseId lease, RemoteStore::Told told);
  void renew_at(Nanos now, const Charge& charge, LeaseId lease, RemoteStore::Told told);

  [[nodiscard]] Nanos now_approx() const noexcept override { return redis_now_approx(); }
  // The clock of Redis less the wall clock here, as of the last answer.
  [[nodiscard]] Nanos clock_offset() const noexcept { return clock_offset_.load(std::memory_order_relaxed); }

  // The name of a cell: a readable prefix, and the hash in base64 as that which decides the slot.
  [[nodiscard]] std::string key_of(const base::Hash128& key) const;

 private:
  class Call;
  class LateCharges;
  class ChargeCall;
  class TellCall;
  class SplitCharges;
  friend class Call;

  [[nodiscard]] Command command_of(const Script& script, std::span<const std::string> keys,
                                   std::string_view blob) const;
  // Of cells in one slot. Its answer is ignored.
  void settle(Settling how, Nanos now, std::uint64_t noted_as, std::span<const Charge> charges);
  // One slot's worth of a charge list.
  void apply_slot(const Terms& terms, std::span<const Charge> charges, std::span<core::Outcome> outcomes, Done done);
  // Cells in any slots.
  void apply_split(const Terms& terms, std::span<const Charge> charges, std::span<core::Outcome> outcomes, Done done);
  void tell(redis::Told told, Nanos now, const Charge& charge, LeaseId lease, Nanos charged_at, RemoteStore::Told done);
  // What the clock of Redis shows, as far as is known here.
  [[nodiscard]] Nanos redis_now_approx() const noexcept;
  // By that clock, when the deadline is over of what was asked then (by steady_now()).
  [[nodiscard]] Nanos deadline_of(Nanos asked) const noexcept;
  void heard(Nanos redis_now, Nanos sent_at) noexcept;
  // The shape of cells that are taken as they stand though the limit has another; 0: none.
  [[nodiscard]] std::uint32_t foreign_shape(std::uint32_t shape) const;
  void remember_foreign(std::uint32_t shape, std::uint32_t foreign);

  Caller& caller_;
  const Options options_;
  ChargeQueue queue_;
  std::atomic<Nanos> clock_offset_{Nanos{0}};
  std::atomic<std::uint64_t> next_note_;  // begins anywhere, so that no two servers have the same
  std::atomic<bool> any_foreign_{false};
  mutable std::mutex foreign_mutex_;
  std::unordered_map<std::uint32_t, std::uint32_t> foreign_;  // at most kMaxForeign; then it begins anew
};

}  // namespace headgate::store::redis
