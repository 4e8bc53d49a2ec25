// The C ABI over MemoryLimiter: checks what comes in, calls the C++ call of the same name, lets nothing out but codes.
#include <array>
#include <memory>
#include <new>

#include "capi/convert.h"
#include "headgate/headgate.h"
#include "headgate/limiter.h"
#include "headgate/version.h"

using headgate::AcquireOptions;
using headgate::Decision;
using headgate::Error;
using headgate::LimiterTotals;
using headgate::ManualClock;
using headgate::MemoryLimiter;
using headgate::Nanos;
using headgate::Options;
using headgate::Request;
using headgate::Reservation;
using headgate::Statistics;
using headgate::SystemClock;
namespace capi = headgate::capi;

struct hg_clock {
  std::shared_ptr<ManualClock> clock;
};

namespace {

// What a limiter is made of. Reservations refer to it weakly, so that it goes when its owner frees it.
struct State {
  std::shared_ptr<ManualClock> manual;  // null: the machine's clock. Outlives the limiter below.
  std::unique_ptr<MemoryLimiter> limiter;

  [[nodiscard]] Nanos now() const noexcept { return manual ? manual->now() : SystemClock::shared().now(); }
};

}  // namespace

struct hg_limiter {
  std::shared_ptr<State> state;
  [[nodiscard]] MemoryLimiter& operator*() const noexcept { return *state->limiter; }
  [[nodiscard]] MemoryLimiter* operator->() const noexcept { return state->limiter.get(); }
};

struct hg_reservation {
  std::weak_ptr<State> state;
  Reservation reservation;
  bool cancelled = false;
};

namespace {

constexpr size_t kBatch = 64;
static_assert(kBatch == headgate::kMaxKeysPerCall);

// Runs the body of one call. Whatever it throws becomes a code: no exception may cross into C.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return HG_ERROR_NO_MEMORY;
  } catch (...) {
    return HG_ERROR_INTERNAL;
  }
}

template <class Body>
auto guarded(char* error, size_t error_size, Body&& body) noexcept -> decltype(body()) {
  capi::write_text("", error, error_size);
  const auto answer = guarded(body);
  if (answer == HG_ERROR_NO_MEMORY || answer == HG_ERROR_INTERNAL) {
    capi::write_text(hg_error_text(static_cast<int>(answer)), error, error_size);
  }
  return answer;
}

int fail(const Error& why, char* error, size_t error_size) noexcept {
  capi::write_text(why.message, error, error_size);
  return capi::to_c(why.code);
}

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

// The first thing that is wrong with the options apart from their limits, which check themselves.
std::optional<Error> complaint(const hg_options* options) {
  if (options == nullptr) return capi::bad("options must not be NULL");
  if (options->struct_size < sizeof(hg_options)) {
    return capi::out_of_range("struct_size", ("at least " + std::to_string(sizeof(hg_options))).c_str(),
                              static_cast<int64_t>(options->struct_size));
  }
  // A caller built against a newer header may set what this library does not know; zero means it did not.
  const char* bytes = reinterpret_cast<const char*>(options);
  for (size_t i = sizeof(hg_options); i < options->struct_size; ++i) {
    if (bytes[i] != 0) return capi::bad("options must not set fields that version " HEADGATE_VERSION " does not know");
  }
  if (options->limits == nullptr) return capi::bad("limits must not be NULL");
  if (options->at_cap < HG_REFUSE_NEW || options->at_cap > HG_EVICT_OLDEST) {
    return capi::out_of_range("at_cap", "0 (refuse new) or 1 (evict oldest)", options->at_cap);
  }
  if (options->track_keys < 0 || options->track_keys > 1) {
    return capi::out_of_range("track_keys", "0 or 1", options->track_keys);
  }
  if (options->own_thread < 0 || options->own_thread > 1) {
    return capi::out_of_range("own_thread", "0 or 1", options->own_thread);
  }
  if (options->reserved != 0) return capi::out_of_range("reserved", "0", options->reserved);
  return std::nullopt;
}

headgate::Result<Options> read_options(const hg_options* from, const std::shared_ptr<ManualClock>& clock) {
  Options options;
  // More limits than these are refused by their number, so there is no need to read them.
  for (size_t i = 0; i < std::min<size_t>(from->limit_count, 8); ++i) {
    auto limit = capi::to_limit(from->limits[i]);
    if (!limit) {
      return Error{limit.error().code, "limits[" + std::to_string(i) + "]: " + limit.error().message};
    }
    options.limit(*std::move(limit));
  }
  if (clock) options.clock(*clock);
  options.max_keys(from->max_keys, static_cast<headgate::AtCap>(from->at_cap));
  options.max_waiters(from->max_waiters);
  options.track_keys(from->track_keys == 1);
  options.own_thread(from->own_thread == 1);
  return options;
}

int make_limiter(const hg_options* from, hg_limiter** made, char* error, size_t error_size) {
  if (const auto wrong = complaint(from)) return fail(*wrong, error, error_size);
  if (from->limit_count > 8) {
    return fail(capi::bad("limit_count must be between 1 and 8, got " + std::to_string(from->limit_count)), error,
                error_size);
  }
  auto state = std::make_shared<State>();
  if (from->clock != nullptr) state->manual = from->clock->clock;
  auto options = read_options(from, state->manual);
  if (!options) return fail(options.error(), error, error_size);
  auto limiter = MemoryLimiter::make(*options);
  if (!limiter) return fail(limiter.error(), error, error_size);
  state->limiter = *std::move(limiter);
  *made = new hg_limiter{std::move(state)};
  return HG_OK;
}

bool valid_instant(int64_t now_ns) noexcept { return now_ns >= 0 && now_ns <= HG_MAX_TIME; }

}  // namespace

extern "C" {

const char* hg_version(void) { return HEADGATE_VERSION; }

const char* hg_reason_text(int reason) {
  if (reason < HG_REASON_OK || reason > HG_REASON_CANCELLED) return "unknown";
  return headgate::to_string(static_cast<headgate::Reason>(reason));
}

const char* hg_strategy_text(int strategy) {
  if (strategy < HG_TOKEN_BUCKET || strategy > HG_QUOTA) return "unknown";
  return headgate::to_string(static_cast<headgate::Strategy>(strategy));
}

const char* hg_error_text(int error) {
  switch (error) {
    case HG_OK: return "ok";
    case HG_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case HG_ERROR_NO_MEMORY: return "out of memory";
    case HG_ERROR_NOT_FOUND: return "it has ended already";
    case HG_ERROR_CORRUPT: return "the file is torn, foreign or of another version";
    case HG_ERROR_IO: return "the operating system refused";
    case HG_ERROR_INTERNAL: return "internal error";
    default: return "unknown";
  }
}

hg_clock* hg_clock_new(int64_t now_ns) {
  if (!valid_instant(now_ns)) return nullptr;
  hg_clock* made = nullptr;
  guarded([&]() -> int {
    made = new hg_clock{std::make_shared<ManualClock>(Nanos{now_ns})};
    return HG_OK;
  });
  return made;
}

int hg_clock_advance(hg_clock* clock, int64_t by_ns) {
  int64_t next = 0;
  if (clock == nullptr || __builtin_add_overflow(clock->clock->now().count(), by_ns, &next) || !valid_instant(next)) {
    return HG_ERROR_INVALID_ARGUMENT;
  }
  return guarded([&]() -> int {
    clock->clock->advance(Nanos{by_ns});
    return HG_OK;
  });
}

int hg_clock_set(hg_clock* clock, int64_t now_ns) {
  if (clock == nullptr || !valid_instant(now_ns)) return HG_ERROR_INVALID_ARGUMENT;
  return guarded([&]() -> int {
    clock->clock->set(Nanos{now_ns});
    return HG_OK;
  });
}

int64_t hg_clock_now(const hg_clock* clock) {
  return (clock != nullptr ? clock->clock->now() : SystemClock::shared().now()).count();
}

void hg_clock_free(hg_clock* clock) { delete clock; }

int hg_options_init(hg_options* options, size_t struct_size) {
  if (options == nullptr || struct_size < sizeof(hg_options)) return HG_ERROR_INVALID_ARGUMENT;
  std::memset(static_cast<void*>(options), 0, struct_size);
  options->struct_size = struct_size;
  options->max_keys = 10'000'000;
  options->max_waiters = 10'000;
  options->own_thread = 1;
  return HG_OK;
}

hg_limiter* hg_limiter_new(const hg_options* options, char* error, size_t error_size) {
  hg_limiter* made = nullptr;
  guarded(error, error_size, [&]() -> int { return make_limiter(options, &made, error, error_size); });
  return made;
}

void hg_limiter_free(hg_limiter* limiter) { delete limiter; }

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
    const std::shared_ptr<State> state = reservation->state.lock();
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
