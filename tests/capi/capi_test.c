/* Every call of the C ABI, from C: what it answers, and that nonsense is refused rather than believed. */
#include <headgate/headgate.h>
#include <headgate/version.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#define CHECK_EQ(actual, expected)                                                                                   \
  do {                                                                                                               \
    const int64_t actual_value = (int64_t)(actual);                                                                  \
    const int64_t expected_value = (int64_t)(expected);                                                              \
    if (actual_value != expected_value) {                                                                            \
      fprintf(stderr, "%s:%d: %s is %" PRId64 ", expected %" PRId64 "\n", __FILE__, __LINE__, #actual, actual_value, \
              expected_value);                                                                                       \
      exit(1);                                                                                                       \
    }                                                                                                                \
  } while (0)

#define CHECK_TEXT(actual, expected)                                                                        \
  do {                                                                                                      \
    const char* actual_text = (actual);                                                                     \
    if (strcmp(actual_text, (expected)) != 0) {                                                             \
      fprintf(stderr, "%s:%d: got \"%s\", expected \"%s\"\n", __FILE__, __LINE__, actual_text, (expected)); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define KEY "agent-7", 7

static const int64_t kStart = 1000 * HG_SECOND;

static hg_limit token_bucket(int64_t capacity, int64_t per_second) {
  hg_limit limit = {.strategy = HG_TOKEN_BUCKET,
                    .as = {.token_bucket = {.capacity = capacity, .refill_rate = {per_second, HG_SECOND}}}};
  return limit;
}

static hg_limit concurrency(int64_t max) {
  hg_limit limit = {.strategy = HG_CONCURRENCY, .as = {.concurrency = {.max = max, .lease_ttl_ns = 30 * HG_SECOND}}};
  return limit;
}

static hg_options options_for(const hg_limit* limits, size_t count, const hg_clock* clock) {
  hg_options options;
  CHECK_EQ(hg_options_init(&options, sizeof options), HG_OK);
  options.limits = limits;
  options.limit_count = count;
  options.clock = clock;
  return options;
}

static hg_limiter* limiter_with(const hg_options* options) {
  char error[HG_ERROR_TEXT_SIZE] = "left over";
  hg_limiter* limiter = hg_limiter_new(options, error, sizeof error);
  CHECK_TEXT(error, "");
  CHECK(limiter != NULL);
  return limiter;
}

static hg_limiter* limiter_of(hg_limit limit, const hg_clock* clock) {
  const hg_options options = options_for(&limit, 1, clock);
  return limiter_with(&options);
}

static hg_clock* clock_at(int64_t now) {
  hg_clock* clock = hg_clock_new(now);
  CHECK(clock != NULL);
  return clock;
}

static void texts_are_the_words_that_policies_use(void) {
  CHECK_TEXT(hg_version(), HEADGATE_VERSION);
  CHECK_TEXT(hg_reason_text(HG_REASON_OK), "ok");
  CHECK_TEXT(hg_reason_text(HG_REASON_COST_EXCEEDS_LIMIT), "cost_exceeds_limit");
  CHECK_TEXT(hg_reason_text(HG_REASON_CANCELLED), "cancelled");
  CHECK_TEXT(hg_reason_text(-1), "unknown");
  CHECK_TEXT(hg_reason_text(8), "unknown");
  CHECK_TEXT(hg_reason_text(256), "unknown"); /* would read as 0 if it were cut to a byte */
  CHECK_TEXT(hg_strategy_text(HG_TOKEN_BUCKET), "token_bucket");
  CHECK_TEXT(hg_strategy_text(HG_QUOTA), "quota");
  CHECK_TEXT(hg_strategy_text(8), "unknown");
  CHECK_TEXT(hg_strategy_text(-1), "unknown");
  CHECK_TEXT(hg_error_text(HG_OK), "ok");
  for (int error = HG_ERROR_INTERNAL; error < 0; ++error) CHECK(strcmp(hg_error_text(error), "unknown") != 0);
  CHECK_TEXT(hg_error_text(1), "unknown");
}

static void a_manual_clock_stands_still_until_told(void) {
  hg_clock* clock = clock_at(kStart);
  CHECK_EQ(hg_clock_now(clock), kStart);
  CHECK_EQ(hg_clock_advance(clock, 5), HG_OK);
  CHECK_EQ(hg_clock_now(clock), kStart + 5);
  CHECK_EQ(hg_clock_set(clock, 7), HG_OK);
  CHECK_EQ(hg_clock_now(clock), 7);
  CHECK_EQ(hg_clock_advance(clock, -7), HG_OK);
  CHECK_EQ(hg_clock_now(clock), 0);

  CHECK_EQ(hg_clock_advance(clock, -1), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_set(clock, -1), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_set(clock, HG_MAX_TIME + 1), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_set(clock, HG_MAX_TIME), HG_OK);
  CHECK_EQ(hg_clock_advance(clock, INT64_MAX), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_advance(clock, 1), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_now(clock), HG_MAX_TIME);
  hg_clock_free(clock);

  CHECK(hg_clock_new(-1) == NULL);
  CHECK(hg_clock_new(INT64_MAX) == NULL);
  CHECK_EQ(hg_clock_advance(NULL, 1), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_clock_set(NULL, 1), HG_ERROR_INVALID_ARGUMENT);
  CHECK(hg_clock_now(NULL) > 1577836800 * HG_SECOND); /* the machine's clock, some time after 2020 */
  hg_clock_free(NULL);
}

static void every_strategy_admits_its_limit_and_then_refuses(void) {
  const hg_limit limits[] = {
      {.strategy = HG_TOKEN_BUCKET, .as = {.token_bucket = {.capacity = 3, .refill_rate = {1, HG_SECOND}}}},
      {.strategy = HG_GCRA, .as = {.gcra = {.max_burst = 2, .count = 1, .period_ns = HG_SECOND}}},
      {.strategy = HG_SLIDING_WINDOW, .as = {.window = {.limit = 3, .window_ns = HG_MINUTE}}},
      {.strategy = HG_SLIDING_WINDOW_COUNTER, .as = {.window = {.limit = 3, .window_ns = HG_MINUTE}}},
      {.strategy = HG_FIXED_WINDOW, .as = {.window = {.limit = 3, .window_ns = HG_MINUTE}}},
      {.strategy = HG_LEAKY_BUCKET, .as = {.leaky_bucket = {.rate = {1, HG_SECOND}, .queue = 2}}},
      {.strategy = HG_CONCURRENCY, .as = {.concurrency = {.max = 3, .lease_ttl_ns = HG_MINUTE}}},
      {.strategy = HG_QUOTA, .as = {.quota = {.limit = 3, .timezone = "Europe/Berlin", .period = HG_PER_DAY}}},
  };
  /* 1000 s after the epoch it is 40 s past the minute, and 01:16:40 in Berlin. */
  const int64_t retry_after[] = {HG_SECOND,      HG_SECOND, HG_MINUTE, 40 * HG_SECOND,
                                 20 * HG_SECOND, HG_SECOND, HG_MINUTE, 22 * HG_HOUR + 43 * HG_MINUTE + 20 * HG_SECOND};
  for (int i = 0; i < 8; ++i) {
    hg_clock* clock = clock_at(kStart);
    hg_limiter* limiter = limiter_of(limits[i], clock);
    hg_decision decision;
    for (int64_t n = 0; n < 3; ++n) {
      CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
      CHECK_EQ(decision.verdict, HG_ALLOWED);
      CHECK_EQ(decision.reason, HG_REASON_OK);
      CHECK_EQ(decision.limit, 3);
      CHECK_EQ(decision.remaining, 2 - n);
      CHECK_EQ(decision.delay_ns, limits[i].strategy == HG_LEAKY_BUCKET ? n * HG_SECOND : 0);
      CHECK_EQ(decision.lease != 0, limits[i].strategy == HG_CONCURRENCY);
    }
    CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
    CHECK_EQ(decision.verdict, HG_NOT_YET);
    CHECK_EQ(decision.reason, HG_REASON_LIMITED);
    CHECK_EQ(decision.remaining, 0);
    CHECK_EQ(decision.retry_after_ns, retry_after[i]);

    /* What it promised holds: refused just before, allowed then. */
    const int64_t at = kStart + decision.retry_after_ns;
    CHECK_EQ(hg_peek_at(limiter, at - 1, KEY, 1, &decision), HG_OK);
    CHECK_EQ(decision.verdict, HG_NOT_YET);
    CHECK_EQ(hg_try_acquire_at(limiter, at, KEY, 1, &decision), HG_OK);
    CHECK_EQ(decision.verdict, HG_ALLOWED);

    CHECK_EQ(hg_try_acquire(limiter, KEY, 4, &decision), HG_OK);
    CHECK_EQ(decision.verdict, HG_NEVER);
    CHECK_EQ(decision.reason, HG_REASON_COST_EXCEEDS_LIMIT);
    CHECK_EQ(decision.retry_after_ns, -1);
    hg_limiter_free(limiter);
    hg_clock_free(clock);
  }
}

static void burst_allowances_are_flagged(void) {
  hg_limit limit = token_bucket(2, 1);
  limit.as.token_bucket.burst_allowance = 1;
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(limit, clock);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(limiter, KEY, 2, &decision), HG_OK);
  CHECK_EQ(decision.burst, 0);
  CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(decision.burst, 1);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void refused_options(const hg_options* options, const char* message) {
  char error[HG_ERROR_TEXT_SIZE];
  CHECK(hg_limiter_new(options, error, sizeof error) == NULL);
  CHECK_TEXT(error, message);
  CHECK(hg_limiter_new(options, NULL, 0) == NULL); /* the error is optional */
}

static void refused_limit(hg_limit limit, const char* message) {
  const hg_options options = options_for(&limit, 1, NULL);
  refused_options(&options, message);
}

static void bad_limits_are_refused_by_name_and_range(void) {
  refused_limit(token_bucket(0, 1), "limits[0]: capacity must be between 1 and 4503599627370496, got 0");
  refused_limit(token_bucket(1, 0), "limits[0]: refill_rate must be above 0 and finite, got 0/s");
  hg_limit limit = {.strategy = HG_GCRA, .as = {.gcra = {.max_burst = -1, .count = 1, .period_ns = HG_SECOND}}};
  refused_limit(limit, "limits[0]: max_burst must be between 0 and 4503599627370495, got -1");
  for (int strategy = HG_SLIDING_WINDOW; strategy <= HG_FIXED_WINDOW; ++strategy) {
    hg_limit window = {.strategy = strategy, .as = {.window = {.limit = 1, .window_ns = 0}}};
    refused_limit(window, "limits[0]: window must be between 1ms and 10y, got 0s");
  }
  hg_limit leaky = {.strategy = HG_LEAKY_BUCKET, .as = {.leaky_bucket = {.rate = {1, HG_SECOND}, .queue = -1}}};
  refused_limit(leaky, "limits[0]: queue must be between 0 and 4503599627370495, got -1");
  refused_limit(concurrency(0), "limits[0]: max must be between 1 and 65536, got 0");
  hg_limit quota = {.strategy = HG_QUOTA, .as = {.quota = {.limit = 1, .timezone = "Mars/Olympus"}}};
  refused_limit(quota,
                "limits[0]: timezone must be a name of the IANA time zone database, such as Europe/Berlin, got "
                "\"Mars/Olympus\"");
  quota.as.quota.timezone = NULL;
  quota.as.quota.period = 5;
  refused_limit(quota, "limits[0]: period must be between 0 (hour) and 4 (year), got 5");
  quota.as.quota.period = 256; /* would read as an hour if it were cut to a byte */
  refused_limit(quota, "limits[0]: period must be between 0 (hour) and 4 (year), got 256");
  limit.strategy = 8;
  refused_limit(limit, "limits[0]: strategy must be between 0 (token_bucket) and 7 (quota), got 8");
  limit.strategy = -1;
  refused_limit(limit, "limits[0]: strategy must be between 0 (token_bucket) and 7 (quota), got -1");
  limit.reserved = 1;
  refused_limit(limit, "limits[0]: reserved must be 0, got 1");

  const hg_limit two[] = {token_bucket(1, 1), token_bucket(-5, 1)};
  const hg_options options = options_for(two, 2, NULL);
  refused_options(&options, "limits[1]: capacity must be between 1 and 4503599627370496, got -5");
}

static void bad_options_are_refused_by_name_and_range(void) {
  const hg_limit limit = token_bucket(1, 1);
  const hg_options good = options_for(&limit, 1, NULL);
  refused_options(NULL, "options must not be NULL");

  hg_options options = good;
  options.struct_size = sizeof options - 1;
  char message[HG_ERROR_TEXT_SIZE];
  snprintf(message, sizeof message, "struct_size must be at least %zu, got %zu", sizeof options, sizeof options - 1);
  refused_options(&options, message);

  options = good;
  options.limits = NULL;
  refused_options(&options, "limits must not be NULL");
  options = good;
  options.limit_count = 0;
  refused_options(&options, "limits must be between 1 and 8, got 0");
  options.limit_count = SIZE_MAX; /* nothing beyond the eighth limit is read */
  refused_options(&options, "limit_count must be between 1 and 8, got 18446744073709551615");
  options = good;
  options.max_keys = 0;
  refused_options(&options, "max_keys must be between the number of limits and 4294967296, got 0");
  options = good;
  options.max_waiters = 1000001;
  refused_options(&options, "max_waiters must be between 0 and 1000000, got 1000001");
  options = good;
  options.at_cap = 2;
  refused_options(&options, "at_cap must be 0 (refuse new) or 1 (evict oldest), got 2");
  options = good;
  options.track_keys = -1;
  refused_options(&options, "track_keys must be 0 or 1, got -1");
  options = good;
  options.own_thread = 2;
  refused_options(&options, "own_thread must be 0 or 1, got 2");
  options = good;
  options.reserved = 1;
  refused_options(&options, "reserved must be 0, got 1");

  CHECK_EQ(hg_options_init(NULL, sizeof options), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_options_init(&options, sizeof options - 1), HG_ERROR_INVALID_ARGUMENT);
}

/* As a program would be that was compiled against a later header, in which the options have grown. */
typedef struct later_options {
  hg_options known;
  uint64_t added;
} later_options;

static void options_of_a_later_header_work_unless_they_use_what_is_new(void) {
  const hg_limit limit = token_bucket(1, 1);
  later_options later;
  memset(&later, 0x55, sizeof later);
  CHECK_EQ(hg_options_init(&later.known, sizeof later), HG_OK);
  CHECK_EQ(later.added, 0);
  later.known.limits = &limit;
  later.known.limit_count = 1;
  hg_limiter_free(limiter_with(&later.known));
  later.added = 1;
  refused_options(&later.known, "options must not set fields that version " HEADGATE_VERSION " does not know");
}

static void messages_are_cut_to_fit(void) {
  char error[] = "XXXXXXXXX";
  CHECK(hg_limiter_new(NULL, error, 8) == NULL);
  CHECK_TEXT(error, "options");
  CHECK(error[8] == 'X');
  CHECK(hg_limiter_new(NULL, error, 1) == NULL);
  CHECK_TEXT(error, "");
}

static void failed_calls_leave_a_refusal(void) {
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), NULL);
  const hg_request request = {"k", 1, 1};
  const hg_acquire_options once = {.permits = 1};
  hg_decision d;
  hg_reservation* reservation = NULL;
#define REFUSES(call)                            \
  do {                                           \
    memset(&d, 0x55, sizeof d);                  \
    d.verdict = HG_ALLOWED;                      \
    CHECK_EQ((call), HG_ERROR_INVALID_ARGUMENT); \
    CHECK_EQ(d.verdict, HG_NEVER);               \
    CHECK_EQ(d.lease, 0);                        \
  } while (0)
  REFUSES(hg_try_acquire(NULL, KEY, 1, &d));
  REFUSES(hg_try_acquire(limiter, NULL, 1, 1, &d));
  REFUSES(hg_try_acquire(limiter, "k", HG_MAX_KEY_SIZE + 1, 1, &d));
  REFUSES(hg_try_acquire(limiter, "k", SIZE_MAX, 1, &d));
  REFUSES(hg_try_acquire_at(NULL, 0, KEY, 1, &d));
  REFUSES(hg_try_acquire_at(limiter, 0, NULL, 1, 1, &d));
  REFUSES(hg_try_acquire_all(NULL, &request, 1, &d));
  REFUSES(hg_try_acquire_all(limiter, NULL, 1, &d));
  REFUSES(hg_try_acquire_all_at(limiter, 0, NULL, 1, &d));
  REFUSES(hg_try_acquire_many(NULL, &request, 1, &d));
  REFUSES(hg_acquire(NULL, KEY, &once, &d));
  REFUSES(hg_acquire(limiter, NULL, 1, &once, &d));
  REFUSES(hg_acquire(limiter, KEY, NULL, &d));
  const hg_acquire_options backwards = {.permits = 1, .max_wait_ns = -1};
  REFUSES(hg_acquire(limiter, KEY, &backwards, &d));
  const hg_acquire_options unknown = {.permits = 1, .reserved = 1};
  REFUSES(hg_acquire(limiter, KEY, &unknown, &d));
  REFUSES(hg_reserve(NULL, KEY, 1, 0, &d, &reservation));
  REFUSES(hg_reserve(limiter, NULL, 1, 1, 0, &d, &reservation));
  REFUSES(hg_reserve(limiter, KEY, 1, -1, &d, &reservation));
  REFUSES(hg_reserve(limiter, KEY, 1, 0, &d, NULL));
  REFUSES(hg_reserve_at(NULL, 0, KEY, 1, 0, &d, &reservation));
  REFUSES(hg_peek(NULL, KEY, 1, &d));
  REFUSES(hg_peek(limiter, NULL, 1, 1, &d));
  REFUSES(hg_peek_at(NULL, 0, KEY, 1, &d));
#undef REFUSES
  CHECK(reservation == NULL);

  hg_limiter_totals totals = {.struct_size = sizeof totals};
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.acquired, 0); /* none of these was carried out */
  CHECK_EQ(totals.throttled, 0);
  hg_limiter_free(limiter);
}

static void count_calls(const hg_decision* decision, void* context) {
  (void)decision;
  ++*(int*)context;
}

static void count_keys(const char* key, size_t key_size, uint64_t acquired, uint64_t throttled, void* context) {
  CHECK_EQ(key_size, 7);
  CHECK(memcmp(key, "agent-7", 7) == 0);
  *(uint64_t*)context += 10 * acquired + throttled;
}

static void null_arguments_are_refused_everywhere(void) {
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), NULL);
  const hg_acquire_options once = {.permits = 1};
  const hg_request request = {"k", 1, 1};
  const hg_request broken[] = {{"k", 1, 1}, {NULL, 1, 1}};
  hg_decision both[2];
  hg_key_statistics statistics = {.struct_size = sizeof statistics};
  hg_limiter_totals totals = {.struct_size = sizeof totals};
  const hg_limit limit = token_bucket(2, 1);
  char error[HG_ERROR_TEXT_SIZE];
  uint64_t wait = 9;
  int calls = 0;
#define REFUSED(call) CHECK_EQ((call), HG_ERROR_INVALID_ARGUMENT)
  REFUSED(hg_try_acquire(limiter, KEY, 1, NULL));
  REFUSED(hg_try_acquire_at(limiter, 0, KEY, 1, NULL));
  REFUSED(hg_try_acquire_all(limiter, &request, 1, NULL));
  REFUSED(hg_try_acquire_many(limiter, &request, 1, NULL));
  REFUSED(hg_try_acquire_many(limiter, NULL, 1, both));
  REFUSED(hg_try_acquire_many_at(limiter, 0, broken, 2, both));
  CHECK_EQ(both[0].verdict, HG_NEVER); /* none is carried out */
  CHECK_EQ(both[1].verdict, HG_NEVER);
  REFUSED(hg_acquire(limiter, KEY, &once, NULL));
  REFUSED(hg_acquire_async(NULL, KEY, &once, count_calls, &calls, &wait));
  REFUSED(hg_acquire_async(limiter, NULL, 1, &once, count_calls, &calls, &wait));
  REFUSED(hg_acquire_async(limiter, KEY, NULL, count_calls, &calls, &wait));
  REFUSED(hg_acquire_async(limiter, KEY, &once, NULL, &calls, &wait));
  CHECK_EQ(wait, 0);
  CHECK_EQ(calls, 0);
  REFUSED(hg_cancel(NULL, 1));
  REFUSED(hg_poll(NULL));
  REFUSED(hg_reserve(limiter, KEY, 1, 0, NULL, NULL));
  REFUSED(hg_reservation_cancel(NULL));
  REFUSED(hg_release(NULL, KEY, 1));
  REFUSED(hg_release(limiter, NULL, 1, 1));
  REFUSED(hg_renew(NULL, KEY, 1));
  REFUSED(hg_renew(limiter, NULL, 1, 1));
  REFUSED(hg_peek(limiter, KEY, 1, NULL));
  REFUSED(hg_statistics(NULL, KEY, &statistics));
  REFUSED(hg_statistics(limiter, NULL, 1, &statistics));
  REFUSED(hg_statistics(limiter, KEY, NULL));
  REFUSED(hg_statistics_at(limiter, 0, KEY, NULL));
  statistics.struct_size = 0;
  REFUSED(hg_statistics(limiter, KEY, &statistics));
  REFUSED(hg_remaining(NULL, KEY));
  REFUSED(hg_remaining(limiter, NULL, 1));
  REFUSED(hg_remaining_at(NULL, 0, KEY));
  REFUSED(hg_reset_time(NULL, KEY));
  REFUSED(hg_reset_time(limiter, NULL, 1));
  REFUSED(hg_clear(NULL, KEY));
  REFUSED(hg_clear(limiter, NULL, 1));
  REFUSED(hg_set_limit(NULL, &limit, HG_RESET, 0, error, sizeof error));
  CHECK_TEXT(error, "limiter must not be NULL");
  REFUSED(hg_set_limit(limiter, NULL, HG_RESET, 0, error, sizeof error));
  CHECK_TEXT(error, "limit must not be NULL");
  REFUSED(hg_totals(NULL, &totals));
  REFUSED(hg_totals(limiter, NULL));
  totals.struct_size = 0;
  REFUSED(hg_totals(limiter, &totals));
  REFUSED(hg_for_each_key(NULL, count_keys, NULL));
  REFUSED(hg_for_each_key(limiter, NULL, NULL));
  REFUSED(hg_maintain(NULL, 1));
  REFUSED(hg_save(NULL, "file", error, sizeof error));
  REFUSED(hg_save(limiter, NULL, error, sizeof error));
  CHECK_TEXT(error, "path must not be NULL");
  REFUSED(hg_restore(NULL, "file", error, sizeof error));
  REFUSED(hg_restore(limiter, NULL, NULL, 0));
#undef REFUSED
  CHECK_EQ(hg_remaining(limiter, KEY), 1); /* nothing was charged */
  hg_limiter_free(limiter);
  hg_limiter_free(NULL);
  hg_reservation_free(NULL);
}

static void keys_are_bytes_with_a_length(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(5, 1), clock);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(limiter, "a\0b", 3, 1, &decision), HG_OK);
  CHECK_EQ(hg_try_acquire(limiter, "a\0c", 3, 2, &decision), HG_OK);
  CHECK_EQ(hg_try_acquire(limiter, NULL, 0, 3, &decision), HG_OK); /* the empty key */
  CHECK_EQ(hg_remaining(limiter, "a\0b", 3), 4);
  CHECK_EQ(hg_remaining(limiter, "a\0c", 3), 3);
  CHECK_EQ(hg_remaining(limiter, "", 0), 2);
  CHECK_EQ(hg_remaining(limiter, "a", 1), 5);
  char* longest = malloc(HG_MAX_KEY_SIZE);
  CHECK(longest != NULL);
  memset(longest, 'k', HG_MAX_KEY_SIZE);
  CHECK_EQ(hg_try_acquire(limiter, longest, HG_MAX_KEY_SIZE, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  free(longest);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void permits_of_zero_and_less(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(2, 1), clock);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(limiter, KEY, 0, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(decision.remaining, 2);
  CHECK_EQ(hg_try_acquire(limiter, KEY, -1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NEVER);
  CHECK_EQ(decision.reason, HG_REASON_INVALID_COST);
  CHECK_EQ(hg_try_acquire(limiter, KEY, INT64_MIN, &decision), HG_OK);
  CHECK_EQ(decision.reason, HG_REASON_INVALID_COST);
  CHECK_EQ(hg_try_acquire(limiter, KEY, INT64_MAX, &decision), HG_OK);
  CHECK_EQ(decision.reason, HG_REASON_COST_EXCEEDS_LIMIT);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void several_keys_are_taken_together_or_each_on_its_own(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(5, 1), clock);
  const hg_request requests[] = {{"a", 1, 2}, {"b", 1, 5}, {"c", 1, 1}};
  hg_decision decision;
  hg_decision decisions[3];
  CHECK_EQ(hg_try_acquire_all(limiter, requests, 3, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(decision.remaining, 0);
  CHECK_EQ(hg_try_acquire_all_at(limiter, kStart, requests, 3, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET);
  CHECK_EQ(hg_remaining(limiter, "a", 1), 3); /* a denial charges nothing */

  CHECK_EQ(hg_try_acquire_many(limiter, requests, 3, decisions), HG_OK);
  CHECK_EQ(decisions[0].verdict, HG_ALLOWED);
  CHECK_EQ(decisions[0].remaining, 1);
  CHECK_EQ(decisions[1].verdict, HG_NOT_YET);
  CHECK_EQ(decisions[2].verdict, HG_ALLOWED);
  CHECK_EQ(hg_try_acquire_many_at(limiter, kStart + 5 * HG_SECOND, requests, 3, decisions), HG_OK);
  CHECK_EQ(decisions[1].verdict, HG_ALLOWED);

  CHECK_EQ(hg_try_acquire_many(limiter, NULL, 0, NULL), HG_OK); /* nothing of nothing */
  CHECK_EQ(hg_try_acquire_all(limiter, NULL, 0, &decision), HG_OK);
  CHECK_EQ(decision.reason, HG_REASON_INVALID_COST);
  hg_request many[65];
  for (int i = 0; i < 65; ++i) many[i] = requests[0];
  CHECK_EQ(hg_try_acquire_all(limiter, many, 65, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NEVER);
  CHECK_EQ(decision.reason, HG_REASON_INVALID_COST);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void a_long_batch_is_answered_in_order(void) {
  enum { kCount = 1000, kKeys = 100 };
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(7, 1), clock);
  static char names[kKeys][4];
  static hg_request requests[kCount];
  static hg_decision decisions[kCount];
  for (int i = 0; i < kKeys; ++i) snprintf(names[i], sizeof names[i], "%03d", i);
  for (int i = 0; i < kCount; ++i) {
    const hg_request request = {names[i % kKeys], 3, 1};
    requests[i] = request;
  }
  CHECK_EQ(hg_try_acquire_many(limiter, requests, kCount, decisions), HG_OK);
  for (int i = 0; i < kCount; ++i) {
    CHECK_EQ(decisions[i].verdict, i / kKeys < 7 ? HG_ALLOWED : HG_NOT_YET);
    CHECK_EQ(decisions[i].remaining, i / kKeys < 7 ? 6 - i / kKeys : 0);
  }
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

typedef struct answer {
  int calls;
  hg_decision decision;
} answer;

static void keep_answer(const hg_decision* decision, void* context) {
  answer* kept = context;
  ++kept->calls;
  kept->decision = *decision;
}

static void acquire_without_a_wait_answers_at_once(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), clock);
  const hg_acquire_options once = {.permits = 1};
  hg_decision decision;
  CHECK_EQ(hg_acquire(limiter, KEY, &once, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(hg_acquire(limiter, KEY, &once, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET);
  CHECK_EQ(decision.retry_after_ns, HG_SECOND);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void* acquire_patiently(void* limiter) {
  static hg_decision decision;
  const hg_acquire_options patient = {.permits = 1, .max_wait_ns = HG_MINUTE};
  CHECK_EQ(hg_acquire(limiter, KEY, &patient, &decision), HG_OK);
  return &decision;
}

static void acquire_blocks_until_the_clock_brings_permits(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), clock);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, acquire_patiently, limiter), 0);
  hg_limiter_totals totals = {.struct_size = sizeof totals};
  while (totals.waiting == 0) {
    CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
    sched_yield();
  }
  CHECK_EQ(hg_try_acquire_at(limiter, kStart + HG_SECOND, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET); /* no call overtakes a waiting one */
  CHECK_EQ(hg_clock_advance(clock, HG_SECOND), HG_OK);
  void* answered = NULL;
  CHECK_EQ(pthread_join(thread, &answered), 0);
  CHECK_EQ(((hg_decision*)answered)->verdict, HG_ALLOWED);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

/* The waits of one key, served by hg_poll as a server's own loop would. */
static void waits_are_served_by_priority_then_arrival(void) {
  hg_clock* clock = clock_at(kStart);
  const hg_limit limit = token_bucket(1, 1);
  hg_options options = options_for(&limit, 1, clock);
  options.own_thread = 0;
  options.max_waiters = 4;
  hg_limiter* limiter = limiter_with(&options);
  answer at_once = {0}, first = {0}, second = {0}, urgent = {0}, dropped = {0}, overflow = {0};
  const hg_acquire_options wait = {.permits = 1, .max_wait_ns = HG_MINUTE};
  const hg_acquire_options hurry = {.permits = 1, .max_wait_ns = HG_MINUTE, .priority = 5};
  uint64_t id = 9;
  uint64_t dropped_id = 0;
  CHECK_EQ(hg_acquire_async(limiter, KEY, &wait, keep_answer, &at_once, &id), HG_OK);
  CHECK_EQ(id, 0);
  CHECK_EQ(at_once.calls, 1);
  CHECK_EQ(at_once.decision.verdict, HG_ALLOWED);

  CHECK_EQ(hg_acquire_async(limiter, KEY, &wait, keep_answer, &first, &id), HG_OK);
  CHECK(id != 0);
  CHECK_EQ(hg_acquire_async(limiter, KEY, &wait, keep_answer, &dropped, &dropped_id), HG_OK);
  CHECK_EQ(hg_acquire_async(limiter, KEY, &wait, keep_answer, &second, NULL), HG_OK);
  CHECK_EQ(hg_acquire_async(limiter, KEY, &hurry, keep_answer, &urgent, &id), HG_OK);
  CHECK_EQ(hg_acquire_async(limiter, KEY, &wait, keep_answer, &overflow, &id), HG_OK);
  CHECK_EQ(overflow.calls, 1);
  CHECK_EQ(overflow.decision.reason, HG_REASON_QUEUE_FULL);

  hg_limiter_totals totals = {.struct_size = sizeof totals};
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.waiting, 4);

  CHECK_EQ(hg_cancel(limiter, dropped_id), HG_OK);
  CHECK_EQ(dropped.calls, 1);
  CHECK_EQ(dropped.decision.reason, HG_REASON_CANCELLED);
  CHECK_EQ(hg_cancel(limiter, dropped_id), HG_ERROR_NOT_FOUND);
  CHECK_EQ(hg_cancel(limiter, 12345), HG_ERROR_NOT_FOUND);

  hg_poll(limiter);
  CHECK_EQ(urgent.calls + first.calls + second.calls, 0);
  CHECK_EQ(hg_clock_advance(clock, HG_SECOND), HG_OK);
  CHECK(hg_poll(limiter) > kStart + HG_SECOND);
  CHECK_EQ(urgent.calls, 1);
  CHECK_EQ(urgent.decision.verdict, HG_ALLOWED);
  CHECK_EQ(first.calls, 0);
  CHECK_EQ(hg_clock_advance(clock, HG_SECOND), HG_OK);
  hg_poll(limiter);
  CHECK_EQ(first.calls, 1);
  CHECK_EQ(second.calls, 0);

  hg_limiter_free(limiter); /* waiting calls are answered */
  CHECK_EQ(second.calls, 1);
  CHECK_EQ(second.decision.verdict, HG_NOT_YET);
  CHECK_EQ(second.decision.reason, HG_REASON_CANCELLED);
  hg_clock_free(clock);
}

static void an_idle_limiter_has_nothing_to_poll(void) {
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), NULL);
  CHECK_EQ(hg_poll(limiter), HG_MAX_TIME);
  hg_limiter_free(limiter);
}

static void reservations_take_ahead_and_give_back(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(2, 1), clock);
  hg_decision decision;
  hg_reservation* now = NULL;
  hg_reservation* later = NULL;
  hg_reservation* refused = NULL;
  CHECK_EQ(hg_reserve(limiter, KEY, 2, 0, &decision, &now), HG_OK);
  CHECK(now != NULL);
  CHECK_EQ(decision.delay_ns, 0);
  CHECK_EQ(hg_reserve_at(limiter, kStart, KEY, 1, 2 * HG_SECOND, &decision, &later), HG_OK);
  CHECK(later != NULL);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(decision.delay_ns, HG_SECOND);
  CHECK_EQ(hg_reserve(limiter, KEY, 2, HG_SECOND, &decision, &refused), HG_OK);
  CHECK(refused == NULL);
  CHECK_EQ(decision.verdict, HG_NOT_YET);

  CHECK_EQ(hg_reservation_cancel(later), HG_OK);
  CHECK_EQ(hg_reservation_cancel(later), HG_ERROR_NOT_FOUND);
  CHECK_EQ(hg_remaining(limiter, KEY), 0);
  CHECK_EQ(hg_reservation_cancel(now), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 2);
  hg_reservation_free(now);
  hg_reservation_free(later);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void objects_may_be_freed_in_any_order(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(2, 1), clock);
  hg_clock_free(clock); /* the limiter keeps it */
  hg_decision decision;
  hg_reservation* reservation = NULL;
  CHECK_EQ(hg_reserve(limiter, KEY, 2, 0, &decision, &reservation), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 0);
  hg_limiter_free(limiter);
  CHECK_EQ(hg_reservation_cancel(reservation), HG_ERROR_NOT_FOUND);
  hg_reservation_free(reservation);
}

static void leases_end_when_released_or_expired(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(concurrency(1), clock);
  hg_decision held;
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &held), HG_OK);
  CHECK(held.lease != 0);
  CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET);
  CHECK_EQ(hg_clock_advance(clock, 20 * HG_SECOND), HG_OK);
  CHECK_EQ(hg_renew(limiter, KEY, held.lease), HG_OK);
  CHECK_EQ(hg_clock_advance(clock, 20 * HG_SECOND), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 0); /* it would have expired but for the renewal */
  CHECK_EQ(hg_release(limiter, KEY, held.lease + 1), HG_ERROR_NOT_FOUND);
  CHECK_EQ(hg_release(limiter, KEY, held.lease), HG_OK);
  CHECK_EQ(hg_release(limiter, KEY, held.lease), HG_ERROR_NOT_FOUND);
  CHECK_EQ(hg_renew(limiter, KEY, held.lease), HG_ERROR_NOT_FOUND);
  CHECK_EQ(hg_remaining(limiter, KEY), 1);
  CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &held), HG_OK);
  CHECK_EQ(hg_clock_advance(clock, 30 * HG_SECOND), HG_OK);
  CHECK_EQ(hg_release(limiter, KEY, held.lease), HG_ERROR_NOT_FOUND); /* lost, so expired */
  CHECK_EQ(hg_release(limiter, KEY, 0), HG_ERROR_NOT_FOUND);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void statistics_and_totals_count_calls(void) {
  hg_clock* clock = clock_at(kStart);
  const hg_limit limit = token_bucket(2, 4);
  hg_options options = options_for(&limit, 1, clock);
  options.track_keys = 1;
  hg_limiter* limiter = limiter_with(&options);
  hg_decision decision;
  for (int i = 0; i < 3; ++i) CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);

  hg_key_statistics statistics = {.struct_size = sizeof statistics};
  CHECK_EQ(hg_statistics(limiter, KEY, &statistics), HG_OK);
  CHECK_EQ(statistics.struct_size, sizeof statistics);
  CHECK_EQ(statistics.available, 0);
  CHECK_EQ(statistics.capacity, 2);
  CHECK(statistics.rate == 4.0);
  CHECK_EQ(statistics.total_acquired, 2);
  CHECK_EQ(statistics.total_throttled, 1);
  CHECK_EQ(statistics.per_key, 1);
  CHECK_EQ(hg_statistics_at(limiter, kStart + HG_SECOND, KEY, &statistics), HG_OK);
  CHECK_EQ(statistics.available, 2);
  CHECK_EQ(hg_statistics(limiter, "other", 5, &statistics), HG_OK);
  CHECK_EQ(statistics.total_acquired, 0);

  hg_limiter_totals totals = {.struct_size = sizeof totals};
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.acquired, 2);
  CHECK_EQ(totals.throttled, 1);
  CHECK_EQ(totals.cells, 1);
  /* A caller built against a smaller struct gets no more than it has room for. */
  totals.throttled = 77;
  totals.struct_size = offsetof(hg_limiter_totals, throttled);
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.acquired, 2);
  CHECK_EQ(totals.throttled, 77);

  uint64_t visited = 0;
  CHECK_EQ(hg_for_each_key(limiter, count_keys, &visited), HG_OK);
  CHECK_EQ(visited, 21);

  CHECK_EQ(hg_remaining_at(limiter, kStart + HG_SECOND / 4, KEY), 1);
  CHECK_EQ(hg_reset_time(limiter, KEY), kStart + HG_SECOND / 2);
  CHECK_EQ(hg_clear(limiter, KEY), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 2);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void idle_cells_are_dropped_by_maintain(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), clock);
  hg_decision decision;
  char name[4];
  for (int i = 0; i < 100; ++i) {
    snprintf(name, sizeof name, "%03d", i);
    CHECK_EQ(hg_try_acquire(limiter, name, 3, 1, &decision), HG_OK);
  }
  hg_limiter_totals totals = {.struct_size = sizeof totals};
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.cells, 100);
  CHECK_EQ(hg_clock_advance(clock, 10 * HG_SECOND), HG_OK);
  CHECK_EQ(hg_maintain(limiter, SIZE_MAX), HG_OK);
  CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
  CHECK_EQ(totals.cells, 0);
  CHECK_EQ(totals.dropped_idle, 100);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void the_cap_on_keys_refuses_or_evicts(void) {
  for (int at_cap = HG_REFUSE_NEW; at_cap <= HG_EVICT_OLDEST; ++at_cap) {
    hg_clock* clock = clock_at(kStart);
    const hg_limit limit = token_bucket(1, 1);
    hg_options options = options_for(&limit, 1, clock);
    options.max_keys = 1;
    options.at_cap = at_cap;
    hg_limiter* limiter = limiter_with(&options);
    hg_decision decision;
    CHECK_EQ(hg_try_acquire(limiter, "a", 1, 1, &decision), HG_OK);
    CHECK_EQ(decision.verdict, HG_ALLOWED);
    uint64_t refused = 0;
    char name[4];
    for (int i = 0; i < 100; ++i) {
      snprintf(name, sizeof name, "%03d", i);
      CHECK_EQ(hg_try_acquire(limiter, name, 3, 1, &decision), HG_OK);
      refused += decision.reason == HG_REASON_TOO_MANY_KEYS;
    }
    hg_limiter_totals totals = {.struct_size = sizeof totals};
    CHECK_EQ(hg_totals(limiter, &totals), HG_OK);
    CHECK_EQ(totals.cells, 1);
    CHECK_EQ(totals.refused, refused);
    CHECK_EQ(totals.refused + totals.evicted, 100);
    if (at_cap == HG_REFUSE_NEW) CHECK_EQ(totals.evicted, 0);
    hg_limiter_free(limiter);
    hg_clock_free(clock);
  }
}

static void limits_change_while_running(void) {
  hg_clock* clock = clock_at(kStart);
  hg_limiter* limiter = limiter_of(token_bucket(10, 1), clock);
  char error[HG_ERROR_TEXT_SIZE];
  hg_decision decision;
  const hg_limit twice = token_bucket(20, 2);
  const hg_limit wide = token_bucket(40, 2);
  const hg_limit other = concurrency(3);
  const hg_limit broken = token_bucket(0, 2);
  CHECK_EQ(hg_try_acquire(limiter, KEY, 5, &decision), HG_OK);
  CHECK_EQ(hg_set_limit(limiter, &twice, HG_KEEP_FRACTION, 0, error, sizeof error), HG_OK);
  CHECK_TEXT(error, "");
  CHECK_EQ(hg_remaining(limiter, KEY), 10); /* half used stays half used */
  CHECK_EQ(hg_set_limit(limiter, &wide, HG_KEEP_UNITS, 0, NULL, 0), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 30);
  CHECK_EQ(hg_set_limit(limiter, &twice, HG_RESET, 0, error, sizeof error), HG_OK);
  CHECK_EQ(hg_remaining(limiter, KEY), 20);

  CHECK_EQ(hg_set_limit(limiter, &twice, 3, 0, error, sizeof error), HG_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(error, "how must be between 0 (keep fraction) and 2 (reset), got 3");
  CHECK_EQ(hg_set_limit(limiter, &twice, -1, 0, error, sizeof error), HG_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(hg_set_limit(limiter, &twice, HG_RESET, 1, error, sizeof error), HG_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(error, "index must be between 0 and 0, got 1");
  CHECK_EQ(hg_set_limit(limiter, &other, HG_RESET, 0, error, sizeof error), HG_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(error, "strategy must stay token_bucket, got concurrency");
  CHECK_EQ(hg_set_limit(limiter, &broken, HG_RESET, 0, error, sizeof error), HG_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(error, "capacity must be between 1 and 4503599627370496, got 0");
  CHECK_EQ(hg_remaining(limiter, KEY), 20);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void several_limits_apply_together(void) {
  hg_clock* clock = clock_at(kStart);
  const hg_limit limits[] = {token_bucket(10, 1), concurrency(2)};
  const hg_options options = options_for(limits, 2, clock);
  hg_limiter* limiter = limiter_with(&options);
  hg_decision decision;
  for (int i = 0; i < 3; ++i) CHECK_EQ(hg_try_acquire(limiter, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET);
  CHECK_EQ(decision.limit, 2);
  hg_limiter_free(limiter);
  hg_clock_free(clock);
}

static void cells_survive_in_a_file(void) {
  char path[64];
  char error[512];
  snprintf(path, sizeof path, "capi_test_%" PRId64 ".snapshot", hg_clock_now(NULL));
  hg_clock* clock = clock_at(kStart);
  hg_limiter* before = limiter_of(token_bucket(5, 1), clock);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire(before, KEY, 4, &decision), HG_OK);
  CHECK_EQ(hg_save(before, path, error, sizeof error), HG_OK);
  CHECK_TEXT(error, "");

  hg_limiter* after = limiter_of(token_bucket(5, 1), clock);
  CHECK_EQ(hg_restore(after, path, error, sizeof error), 1);
  CHECK_TEXT(error, "");
  CHECK_EQ(hg_remaining(after, KEY), 1);
  CHECK_EQ(hg_restore(after, path, error, sizeof error), HG_ERROR_INVALID_ARGUMENT); /* it has keys now */

  FILE* file = fopen(path, "wb");
  CHECK(file != NULL);
  fputs("something else altogether, and long enough", file);
  fclose(file);
  hg_limiter* empty = limiter_of(token_bucket(5, 1), clock);
  CHECK_EQ(hg_restore(empty, path, error, sizeof error), HG_ERROR_CORRUPT);
  CHECK(strstr(error, path) != NULL);
  CHECK_EQ(hg_remaining(empty, KEY), 5);
  CHECK_EQ(remove(path), 0);
  CHECK_EQ(hg_restore(empty, path, error, sizeof error), HG_ERROR_IO);
  CHECK_EQ(hg_save(empty, "no/such/folder/file", error, sizeof error), HG_ERROR_IO);
  CHECK(strstr(error, "no/such/folder") != NULL);
  hg_limiter_free(before);
  hg_limiter_free(after);
  hg_limiter_free(empty);
  hg_clock_free(clock);
}

static void instants_outside_the_range_are_clamped(void) {
  hg_limiter* limiter = limiter_of(token_bucket(1, 1), NULL);
  hg_decision decision;
  CHECK_EQ(hg_try_acquire_at(limiter, INT64_MIN, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  CHECK_EQ(hg_try_acquire_at(limiter, -1, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_NOT_YET);
  CHECK_EQ(hg_try_acquire_at(limiter, INT64_MAX, KEY, 1, &decision), HG_OK);
  CHECK_EQ(decision.verdict, HG_ALLOWED);
  hg_limiter_free(limiter);
}

int main(void) {
  texts_are_the_words_that_policies_use();
  a_manual_clock_stands_still_until_told();
  every_strategy_admits_its_limit_and_then_refuses();
  burst_allowances_are_flagged();
  bad_limits_are_refused_by_name_and_range();
  bad_options_are_refused_by_name_and_range();
  options_of_a_later_header_work_unless_they_use_what_is_new();
  messages_are_cut_to_fit();
  failed_calls_leave_a_refusal();
  null_arguments_are_refused_everywhere();
  keys_are_bytes_with_a_length();
  permits_of_zero_and_less();
  several_keys_are_taken_together_or_each_on_its_own();
  a_long_batch_is_answered_in_order();
  acquire_without_a_wait_answers_at_once();
  acquire_blocks_until_the_clock_brings_permits();
  waits_are_served_by_priority_then_arrival();
  an_idle_limiter_has_nothing_to_poll();
  reservations_take_ahead_and_give_back();
  objects_may_be_freed_in_any_order();
  leases_end_when_released_or_expired();
  statistics_and_totals_count_calls();
  idle_cells_are_dropped_by_maintain();
  the_cap_on_keys_refuses_or_evicts();
  limits_change_while_running();
  several_limits_apply_together();
  cells_survive_in_a_file();
  instants_outside_the_range_are_clamped();
  puts("capi: all claims hold");
  return 0;
}
