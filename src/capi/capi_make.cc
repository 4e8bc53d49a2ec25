// The C ABI, what comes before the calls: names of codes, clocks, options, limiters made and freed.
#include "capi/handles.h"
#include "headgate/version.h"

using headgate::Error;
using headgate::ManualClock;
using headgate::MemoryLimiter;
using headgate::Nanos;
using headgate::Options;
using headgate::SystemClock;
using headgate::capi::fail;
using headgate::capi::guarded;
namespace capi = headgate::capi;

namespace {

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
  auto state = std::make_shared<capi::State>();
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

}  // extern "C"
