// The C ABI over MemoryLimiter: checks what comes in, calls the C++ call of the same name, lets nothing out but codes.
#include <array>
#include <cassert>

#include "capi/handles.h"

using headgate::AcquireOptions;
using headgate::Decision;
using headgate::LimiterTotals;
using headgate::MemoryLimiter;
using headgate::Nanos;
using headgate::Request;
using headgate::Statistics;
using headgate::capi::fail;
using headgate::capi::guarded;
namespace capi = headgate::capi;

namespace {

constexpr size_t kBatch = 64;
static_assert(kBatch == headgate::kMaxKeysPerCall);

// A failed call must not leave yesterday's permission in the caller's hands.
bool begin(hg_decision* decision) noexcept {
  if (decision == nullptr) return false;
  *decision = {};
  decision->retry_after_ns = -1;
  return true;
}

// The shape of every call about one key that answers a decision.
template <class Call>
int decide(const hg_limiter* limiter, const char* key, size_t key_size, hg_decision* decision, Call&& call) noexcept {
  if (!begin(decision) || limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int {
    *decision = capi::to_c(call(**limiter, capi::view(key, key_size)));
    return HG_OK;
  });
}

bool valid_requests(const hg_request* requests, size_t count) noexcept {
  if (requests == nullptr) return count == 0;
  for (size_t i = 0; i < count; ++i) {
    if (!capi::valid_key(requests[i].key, requests[i].key_size)) return false;
  }
  return true;
}

// REQUIRES: count <= kBatch, and the requests are valid.
void read_requests(const hg_request* requests, size_t count, std::array<Request, kBatch>& to) noexcept {
  assert(count <= kBatch);
  assert(valid_requests(requests, count));
  for (size_t i = 0; i < count; ++i) {
    to[i] = {capi::view(requests[i].key, requests[i].key_size), requests[i].permits};
  }
}

int acquire_all(hg_limiter* limiter, const Nanos* now, const hg_request* requests, size_t count,
                hg_decision* decision) noexcept {
  if (!begin(decision) || limiter == nullptr || !valid_requests(requests, count)) return HG_ERROR_INVALID_ARGUMENT;
  std::array<Request, kBatch> batch;
  if (count > kBatch) {  // as the limiter itself would answer
    decision->reason = HG_REASON_INVALID_COST;
    return HG_OK;
  }
  read_requests(requests, count, batch);
  const std::span<const Request> all{batch.data(), count};
  *decision = capi::to_c(now != nullptr ? (*limiter)->try_acquire_all_at(*now, all) : (*limiter)->try_acquire_all(all));
  return HG_OK;
}

int acquire_many(hg_limiter* limiter, const Nanos* at, const hg_request* requests, size_t count,
                 hg_decision* decisions) noexcept {
  if (decisions == nullptr && count > 0) return HG_ERROR_INVALID_ARGUMENT;
  if (limiter == nullptr || !valid_requests(requests, count)) {
    // Without requests to count by, `count` may be any number: nothing can be written then.
    for (size_t i = 0; requests != nullptr && i < count; ++i) begin(&decisions[i]);
    return HG_ERROR_INVALID_ARGUMENT;
  }
  const Nanos now = at != nullptr ? *at : limiter->state->now();  // one instant for all
  std::array<Request, kBatch> batch;
  std::array<Decision, kBatch> answers;
  for (size_t first = 0; first < count; first += kBatch) {
    const size_t size = std::min(kBatch, count - first);
    read_requests(requests + first, size, batch);
    (*limiter)->try_acquire_many_at(now, {batch.data(), size}, answers);
    for (size_t i = 0; i < size; ++i) decisions[first + i] = capi::to_c(answers[i]);
  }
  return HG_OK;
}

bool valid(const hg_acquire_options* options) noexcept {
  return options != nullptr && options->max_wait_ns >= 0 && options->reserved == 0;
}

AcquireOptions to_cpp(const hg_acquire_options& options) noexcept {
  return {options.permits, Nanos{options.max_wait_ns}, options.priority};
}

int reserve(hg_limiter* limiter, const Nanos* now, const char* key, size_t key_size, int64_t permits,
            int64_t max_wait_ns, hg_decision* decision, hg_reservation** reservation) noexcept {
  if (reservation != nullptr) *reservation = nullptr;
  const bool complete = begin(decision) && reservation != nullptr && limiter != nullptr;
  if (!complete || max_wait_ns < 0 || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int {
    // Made first: once the permits are taken, nothing may fail.
    auto made = std::make_unique<hg_reservation>();
    const std::string_view name = capi::view(key, key_size);
    const Nanos wait{max_wait_ns};
    made->reservation =
        now != nullptr ? (*limiter)->reserve_at(*now, name, permits, wait) : (*limiter)->reserve(name, permits, wait);
    made->state = limiter->state;
    *decision = capi::to_c(made->reservation.decision());
    if (made->reservation.ok()) *reservation = made.release();
    return HG_OK;
  });
}

hg_key_statistics to_c(const Statistics& s) noexcept {
  return {
      0, s.available, s.capacity, s.rate, s.last_refill.count(), s.total_acquired, s.total_throttled, s.per_key ? 1 : 0,
      0};
}

template <class Call>
int write_statistics(const hg_limiter* limiter, const char* key, size_t key_size, hg_key_statistics* to,
                     Call&& call) noexcept {
  if (limiter == nullptr || to == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int { return capi::write_sized(to_c(call(**limiter, capi::view(key, key_size))), to); });
}

}  // namespace

extern "C" {

int hg_try_acquire(hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, hg_decision* decision) {
  return decide(limiter, key, key_size, decision,
                [&](MemoryLimiter& l, std::string_view name) { return l.try_acquire(name, permits); });
}

int hg_try_acquire_at(hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
                      hg_decision* decision) {
  return decide(limiter, key, key_size, decision, [&](MemoryLimiter& l, std::string_view name) {
    return l.try_acquire_at(Nanos{now_ns}, name, permits);
  });
}

int hg_try_acquire_all(hg_limiter* limiter, const hg_request* requests, size_t count, hg_decision* decision) {
  return acquire_all(limiter, nullptr, requests, count, decision);
}

int hg_try_acquire_all_at(hg_limiter* limiter, int64_t now_ns, const hg_request* requests, size_t count,
                          hg_decision* decision) {
  const Nanos now{now_ns};
  return acquire_all(limiter, &now, requests, count, decision);
}

int hg_try_acquire_many(hg_limiter* limiter, const hg_request* requests, size_t count, hg_decision* decisions) {
  return acquire_many(limiter, nullptr, requests, count, decisions);
}

int hg_try_acquire_many_at(hg_limiter* limiter, int64_t now_ns, const hg_request* requests, size_t count,
                           hg_decision* decisions) {
  const Nanos now{now_ns};
  return acquire_many(limiter, &now, requests, count, decisions);
}

int hg_acquire(hg_limiter* limiter, const char* key, size_t key_size, const hg_acquire_options* options,
               hg_decision* decision) {
  if (!valid(options)) {
    begin(decision);
    return HG_ERROR_INVALID_ARGUMENT;
  }
  return decide(limiter, key, key_size, decision,
                [&](MemoryLimiter& l, std::string_view name) { return l.acquire(name, to_cpp(*options)); });
}

int hg_acquire_async(hg_limiter* limiter, const char* key, size_t key_size, const hg_acquire_options* options,
                     hg_done done, void* context, uint64_t* wait) {
  if (wait != nullptr) *wait = 0;
  if (limiter == nullptr || !valid(options) || done == nullptr || !capi::valid_key(key, key_size)) {
    return HG_ERROR_INVALID_ARGUMENT;
  }
  return guarded([&]() -> int {
    const auto tell = [done, context](const Decision& decision) {
      const hg_decision answer = capi::to_c(decision);
      done(&answer, context);
    };
    const uint64_t id = (*limiter)->acquire_async(capi::view(key, key_size), to_cpp(*options), tell);
    if (wait != nullptr) *wait = id;
    return HG_OK;
  });
}

int hg_cancel(hg_limiter* limiter, uint64_t wait) {
  if (limiter == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int { return (*limiter)->cancel(wait) ? HG_OK : HG_ERROR_NOT_FOUND; });
}

int64_t hg_poll(hg_limiter* limiter) {
  if (limiter == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int64_t { return (*limiter)->poll().count(); });
}

int hg_reserve(hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, int64_t max_wait_ns,
               hg_decision* decision, hg_reservation** reservation) {
  return reserve(limiter, nullptr, key, key_size, permits, max_wait_ns, decision, reservation);
}

int hg_reserve_at(hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
                  int64_t max_wait_ns, hg_decision* decision, hg_reservation** reservation) {
  const Nanos now{now_ns};
  return reserve(limiter, &now, key, key_size, permits, max_wait_ns, decision, reservation);
}

int hg_reservation_cancel(hg_reservation* reservation) {
  if (reservation == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int {
    const std::shared_ptr<capi::State> state = reservation->state.lock();
    if (state == nullptr || reservation->cancelled) return HG_ERROR_NOT_FOUND;
    reservation->cancelled = true;
    reservation->reservation.cancel();
    return HG_OK;
  });
}

void hg_reservation_free(hg_reservation* reservation) { delete reservation; }

int hg_release(hg_limiter* limiter, const char* key, size_t key_size, uint64_t lease) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return (*limiter)->release(capi::view(key, key_size), lease) ? HG_OK : HG_ERROR_NOT_FOUND;
}

int hg_renew(hg_limiter* limiter, const char* key, size_t key_size, uint64_t lease) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return (*limiter)->renew(capi::view(key, key_size), lease) ? HG_OK : HG_ERROR_NOT_FOUND;
}

int hg_peek(const hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, hg_decision* decision) {
  return decide(limiter, key, key_size, decision,
                [&](const MemoryLimiter& l, std::string_view name) { return l.peek(name, permits); });
}

int hg_peek_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
               hg_decision* decision) {
  return decide(limiter, key, key_size, decision,
                [&](const MemoryLimiter& l, std::string_view name) { return l.peek_at(Nanos{now_ns}, name, permits); });
}

int hg_statistics(const hg_limiter* limiter, const char* key, size_t key_size, hg_key_statistics* statistics) {
  return write_statistics(limiter, key, key_size, statistics,
                          [](const MemoryLimiter& l, std::string_view name) { return l.statistics(name); });
}

int hg_statistics_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size,
                     hg_key_statistics* statistics) {
  return write_statistics(limiter, key, key_size, statistics, [&](const MemoryLimiter& l, std::string_view name) {
    return l.statistics_at(Nanos{now_ns}, name);
  });
}

int64_t hg_remaining(const hg_limiter* limiter, const char* key, size_t key_size) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return (*limiter)->remaining(capi::view(key, key_size));
}

int64_t hg_remaining_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return (*limiter)->remaining_at(Nanos{now_ns}, capi::view(key, key_size));
}

int64_t hg_reset_time(const hg_limiter* limiter, const char* key, size_t key_size) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  return (*limiter)->reset_time(capi::view(key, key_size)).count();
}

int hg_clear(hg_limiter* limiter, const char* key, size_t key_size) {
  if (limiter == nullptr || !capi::valid_key(key, key_size)) return HG_ERROR_INVALID_ARGUMENT;
  (*limiter)->clear(capi::view(key, key_size));
  return HG_OK;
}

int hg_set_limit(hg_limiter* limiter, const hg_limit* limit, int how, size_t index, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> int {
    if (limiter == nullptr) return fail(capi::bad("limiter must not be NULL"), error, error_size);
    if (limit == nullptr) return fail(capi::bad("limit must not be NULL"), error, error_size);
    if (how < HG_KEEP_FRACTION || how > HG_RESET) {
      return fail(capi::out_of_range("how", "between 0 (keep fraction) and 2 (reset)", how), error, error_size);
    }
    const auto wanted = capi::to_limit(*limit);
    if (!wanted) return fail(wanted.error(), error, error_size);
    const auto changed = (*limiter)->set_limit(*wanted, static_cast<headgate::OnChange>(how), index);
    return changed ? static_cast<int>(HG_OK) : fail(changed.error(), error, error_size);
  });
}

int hg_totals(const hg_limiter* limiter, hg_limiter_totals* totals) {
  if (limiter == nullptr || totals == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  const LimiterTotals t = (*limiter)->totals();
  return capi::write_sized(
      hg_limiter_totals{0, t.acquired, t.throttled, t.cells, t.dropped_idle, t.evicted, t.refused, t.waiting}, totals);
}

int hg_for_each_key(const hg_limiter* limiter, hg_visit visit, void* context) {
  if (limiter == nullptr || visit == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int {
    (*limiter)->for_each_key([&](std::string_view key, uint64_t acquired, uint64_t throttled) {
      visit(key.data(), key.size(), acquired, throttled, context);
    });
    return HG_OK;
  });
}

int hg_maintain(hg_limiter* limiter, size_t cells) {
  if (limiter == nullptr) return HG_ERROR_INVALID_ARGUMENT;
  (*limiter)->maintain(cells);
  return HG_OK;
}

int hg_save(const hg_limiter* limiter, const char* path, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> int {
    if (limiter == nullptr) return fail(capi::bad("limiter must not be NULL"), error, error_size);
    if (path == nullptr) return fail(capi::bad("path must not be NULL"), error, error_size);
    const auto saved = (*limiter)->save(path);
    return saved ? static_cast<int>(HG_OK) : fail(saved.error(), error, error_size);
  });
}

int64_t hg_restore(hg_limiter* limiter, const char* path, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> int64_t {
    if (limiter == nullptr) return fail(capi::bad("limiter must not be NULL"), error, error_size);
    if (path == nullptr) return fail(capi::bad("path must not be NULL"), error, error_size);
    const auto restored = (*limiter)->restore(path);
    return restored ? static_cast<int64_t>(*restored) : fail(restored.error(), error, error_size);
  });
}

}  // extern "C"
