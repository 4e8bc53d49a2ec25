/* Headgate's C ABI: the in-memory limiter for C and for every language that can call C.
 *
 *   hg_limit limit = {.strategy = HG_TOKEN_BUCKET,
 *                     .as = {.token_bucket = {.capacity = 10, .refill_rate = {5, HG_SECOND}}}};
 *   hg_options options;
 *   hg_options_init(&options, sizeof options);
 *   options.limits = &limit;
 *   options.limit_count = 1;
 *   char error[HG_ERROR_TEXT_SIZE];
 *   hg_limiter* limiter = hg_limiter_new(&options, error, sizeof error);
 *   hg_decision decision;
 *   hg_try_acquire(limiter, "agent-7", 7, 1, &decision);
 *   if (decision.verdict == HG_ALLOWED) act();
 *
 * Answers. Calls return HG_OK (0) or a negative hg_error. Calls that return int64_t answer a value of 0 or more, or a
 * negative hg_error. Being denied is no error: it is an hg_decision. When a call fails, the decision it was to fill
 * reads HG_NEVER, so that code which forgets to look at the error refuses.
 *
 * Bad input. Null pointers, unknown enum values and numbers out of range are refused with HG_ERROR_INVALID_ARGUMENT.
 * Nothing here throws, prints or exits.
 *
 * Errors in words. Calls that take (error, error_size) write a message, cut to fit and always ended with a zero byte;
 * both may be 0 when nobody wants to read it. On success the message is empty.
 *
 * Ownership. What a function named *_new or hg_reserve gives belongs to the caller, who frees it with the matching
 * *_free; freeing NULL does nothing. A limiter keeps its clock alive, and a reservation notices that its limiter is
 * gone, so they may be freed in any order. Strings and arrays passed in are read during the call and never kept.
 *
 * Threads. All calls on one limiter or one clock may run at the same time, except *_free: nobody may be inside another
 * call on an object that is being freed. A reservation belongs to one thread at a time.
 *
 * Time. Instants are nanoseconds since the Unix epoch, spans are nanoseconds. Calls ending in _at take the time instead
 * of reading the limiter's clock; instants before 0 or after HG_MAX_TIME are clamped.
 *
 * Keys are bytes with a length of 0 to HG_MAX_KEY_SIZE; they need no zero byte at the end and may contain some.
 *
 * ABI. Enum values and field offsets never change. A struct that begins with `struct_size` may grow at its end, with
 * fields whose zero means what was the case before; set it to sizeof. All other structs keep their size for good.
 */
#ifndef HEADGATE_HEADGATE_H
#define HEADGATE_HEADGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HG_MILLISECOND INT64_C(1000000)
#define HG_SECOND INT64_C(1000000000)
#define HG_MINUTE (60 * HG_SECOND)
#define HG_HOUR (60 * HG_MINUTE)
#define HG_MAX_TIME (INT64_C(1) << 62)
#define HG_MAX_KEY_SIZE 65536
#define HG_ERROR_TEXT_SIZE 256 /* room for every message that quotes no long name */

enum hg_error {
  HG_OK = 0,
  HG_ERROR_INVALID_ARGUMENT = -1,
  HG_ERROR_NO_MEMORY = -2,
  HG_ERROR_NOT_FOUND = -3, /* the lease, wait or reservation has ended already */
  HG_ERROR_CORRUPT = -4,   /* a file that is torn, foreign or of another version */
  HG_ERROR_IO = -5,        /* the operating system said no */
  HG_ERROR_INTERNAL = -6   /* a fault of this library */
};

enum hg_strategy {
  HG_TOKEN_BUCKET = 0,
  HG_GCRA = 1,
  HG_SLIDING_WINDOW = 2,
  HG_SLIDING_WINDOW_COUNTER = 3,
  HG_FIXED_WINDOW = 4,
  HG_LEAKY_BUCKET = 5,
  HG_CONCURRENCY = 6,
  HG_QUOTA = 7
};

enum hg_period { HG_PER_HOUR = 0, HG_PER_DAY = 1, HG_PER_WEEK = 2, HG_PER_MONTH = 3, HG_PER_YEAR = 4 };

/* Zero refuses, so that a zeroed decision does. */
enum hg_verdict {
  HG_NEVER = 0,   /* no wait could help */
  HG_NOT_YET = 1, /* retry_after_ns says when to ask again */
  HG_ALLOWED = 2
};

enum hg_reason {
  HG_REASON_OK = 0,
  HG_REASON_LIMITED = 1,            /* the limit is exceeded */
  HG_REASON_COST_EXCEEDS_LIMIT = 2, /* more permits than the limit could ever hold */
  HG_REASON_INVALID_COST = 3,       /* negative permits, or more keys times limits in one call than 64 */
  HG_REASON_TOO_MANY_KEYS = 4,      /* a new key, and the limiter is at its cap */
  HG_REASON_QUEUE_FULL = 5,         /* as many callers wait as may wait */
  HG_REASON_TIMED_OUT = 6,          /* waited as long as it was told to */
  HG_REASON_CANCELLED = 7
};

/* What happens to a new key when max_keys cells exist and none is idle. */
enum hg_at_cap { HG_REFUSE_NEW = 0, HG_EVICT_OLDEST = 1 };

/* What becomes of the units in use when a limit is changed. */
enum hg_on_change {
  HG_KEEP_FRACTION = 0, /* half used stays half used */
  HG_KEEP_UNITS = 1,    /* 50 used stay 50 used */
  HG_RESET = 2          /* as if never seen */
};

typedef struct hg_limiter hg_limiter;
typedef struct hg_clock hg_clock;
typedef struct hg_reservation hg_reservation;

/* So many units in so long a time, kept exact. */
typedef struct hg_rate {
  int64_t units;
  int64_t per_ns;
} hg_rate;

typedef struct hg_token_bucket {
  int64_t capacity;
  hg_rate refill_rate;
  int64_t burst_allowance; /* here and below: this many units past the limit are admitted, flagged as burst */
} hg_token_bucket;

typedef struct hg_gcra {
  int64_t max_burst; /* as in redis-cell: the limit is max_burst + 1 */
  int64_t count;
  int64_t period_ns;
  int64_t burst_allowance;
} hg_gcra;

typedef struct hg_window {
  int64_t limit;
  int64_t window_ns;
  int64_t burst_allowance;
} hg_window;

typedef struct hg_leaky_bucket {
  hg_rate rate;
  int64_t queue; /* how many units may wait for their turn */
} hg_leaky_bucket;

typedef struct hg_concurrency {
  int64_t max;
  int64_t lease_ttl_ns;
  int64_t burst_allowance;
} hg_concurrency;

typedef struct hg_quota {
  int64_t limit;
  const char* timezone; /* an IANA name; NULL: UTC */
  int64_t burst_allowance;
  int32_t period; /* enum hg_period */
  int32_t reserved;
} hg_quota;

typedef struct hg_limit {
  int32_t strategy; /* enum hg_strategy: says which of the union is read */
  int32_t reserved; /* must be 0 */
  union {
    hg_token_bucket token_bucket;
    hg_gcra gcra;
    hg_window window; /* sliding_window, sliding_window_counter and fixed_window */
    hg_leaky_bucket leaky_bucket;
    hg_concurrency concurrency;
    hg_quota quota;
    int64_t room[8]; /* limits lie in arrays, so their size is settled now */
  } as;
} hg_limit;

typedef struct hg_options {
  size_t struct_size;
  const hg_limit* limits; /* all apply to each key, taken together or not at all */
  size_t limit_count;     /* 1 to 8 */
  const hg_clock* clock;  /* NULL: the machine's clock */
  uint64_t max_keys;      /* a cap on cells (keys times limits) */
  uint64_t max_waiters;   /* how many callers may wait at a time, over all keys */
  int32_t at_cap;         /* enum hg_at_cap */
  int32_t track_keys;     /* 1: keep each key's name and totals */
  int32_t own_thread;     /* 0: waits are served by hg_poll only; hg_acquire then needs another thread to call it */
  int32_t reserved;       /* must be 0 */
} hg_options;

typedef struct hg_decision {
  int32_t verdict; /* enum hg_verdict */
  int32_t reason;  /* enum hg_reason */
  int32_t burst;   /* 1: admitted past the limit, within its burst allowance */
  int32_t reserved;
  int64_t limit;          /* of the limit with the least remaining */
  int64_t remaining;      /* units left after this; of several limits the least */
  int64_t retry_after_ns; /* when denied: how long until it could fit; -1: never */
  int64_t delay_ns;       /* when allowed: act this much later (leaky buckets, reservations) */
  int64_t reset_after_ns; /* how long until the limit is whole again */
  uint64_t lease;         /* not 0 when a concurrency limit was charged: hg_release it */
} hg_decision;

/* One key's part of a call that takes several. */
typedef struct hg_request {
  const char* key;
  size_t key_size;
  int64_t permits;
} hg_request;

typedef struct hg_acquire_options {
  int64_t permits;
  int64_t max_wait_ns; /* 0: do not wait */
  int32_t priority;    /* higher goes first; equals go in order of arrival */
  int32_t reserved;    /* must be 0 */
} hg_acquire_options;

typedef struct hg_key_statistics {
  size_t struct_size;
  int64_t available;
  int64_t capacity;
  double rate; /* units per second, of refill or of the window; 0: concurrency */
  int64_t last_refill_ns;
  uint64_t total_acquired; /* calls, not units */
  uint64_t total_throttled;
  int32_t per_key; /* 1: the totals are this key's; 0: the whole limiter's, since keys are not tracked */
  int32_t reserved;
} hg_key_statistics;

typedef struct hg_limiter_totals {
  size_t struct_size;
  uint64_t acquired;
  uint64_t throttled;
  uint64_t cells;
  uint64_t dropped_idle; /* cells that had become equal to new ones */
  uint64_t evicted;      /* cells forgotten at the cap */
  uint64_t refused;      /* new keys denied at the cap */
  uint64_t waiting;
} hg_limiter_totals;

/* Called exactly once per wait. May call the limiter; must not throw, and must not free the limiter. */
typedef void (*hg_done)(const hg_decision* decision, void* context);
/* Called with a part of the limiter locked: be quick, and do not call it. Must not throw. */
typedef void (*hg_visit)(const char* key, size_t key_size, uint64_t acquired, uint64_t throttled, void* context);

/* The library's version, such as "0.1.0". These texts are static; unknown values read "unknown". */
const char* hg_version(void);
const char* hg_reason_text(int reason);
const char* hg_strategy_text(int strategy);
const char* hg_error_text(int error);

/* A clock that stands still until it is told; moving it wakes whoever waits on it. NULL: out of memory, or an instant
   outside 0 to HG_MAX_TIME. */
hg_clock* hg_clock_new(int64_t now_ns);
/* The result must stay within 0 to HG_MAX_TIME, or the clock stays where it is. Both may go backwards. */
int hg_clock_advance(hg_clock* clock, int64_t by_ns);
int hg_clock_set(hg_clock* clock, int64_t now_ns);
/* NULL: the machine's clock. */
int64_t hg_clock_now(const hg_clock* clock);
void hg_clock_free(hg_clock* clock);

/* Fills in the defaults: the machine's clock, ten million cells, ten thousand waiters, refuse new keys at the cap, keys
   not tracked, own thread. */
int hg_options_init(hg_options* options, size_t struct_size);
/* NULL: refused; the message names the field, its range and what came. */
hg_limiter* hg_limiter_new(const hg_options* options, char* error, size_t error_size);
/* Ends all waits as HG_REASON_CANCELLED: their callbacks have run when this returns. */
void hg_limiter_free(hg_limiter* limiter);

/* Takes the permits or nothing, at once. 0 permits charge nothing and are allowed. */
int hg_try_acquire(hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, hg_decision* decision);
int hg_try_acquire_at(hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
                      hg_decision* decision);
/* Several keys, all or nothing. A key named twice is charged twice. */
int hg_try_acquire_all(hg_limiter* limiter, const hg_request* requests, size_t count, hg_decision* decision);
int hg_try_acquire_all_at(hg_limiter* limiter, int64_t now_ns, const hg_request* requests, size_t count,
                          hg_decision* decision);
/* Several keys, each on its own, in order; `decisions` has room for `count`. Faster than one by one. If any request is
   malformed, none is carried out. */
int hg_try_acquire_many(hg_limiter* limiter, const hg_request* requests, size_t count, hg_decision* decisions);
int hg_try_acquire_many_at(hg_limiter* limiter, int64_t now_ns, const hg_request* requests, size_t count,
                           hg_decision* decisions);

/* Blocks until the permits are there, or max_wait_ns has passed on the limiter's clock. */
int hg_acquire(hg_limiter* limiter, const char* key, size_t key_size, const hg_acquire_options* options,
               hg_decision* decision);
/* Calls back from this call if no wait is needed, else from the limiter's thread or hg_poll. Writes the wait's id, or 0
   if it has called back already, to `wait`, which may be NULL. An error means that it never calls back. */
int hg_acquire_async(hg_limiter* limiter, const char* key, size_t key_size, const hg_acquire_options* options,
                     hg_done done, void* context, uint64_t* wait);
/* Ends a wait: calls it back with HG_REASON_CANCELLED. HG_ERROR_NOT_FOUND: it had ended. */
int hg_cancel(hg_limiter* limiter, uint64_t wait);
/* Serves the waits that are due; answers the instant of the next one (HG_MAX_TIME: nobody waits). Only needed with
   own_thread 0. */
int64_t hg_poll(hg_limiter* limiter);

/* Takes the permits for an act that happens within max_wait_ns, decision->delay_ns from now. Writes NULL to
   `reservation` if denied. Freeing a reservation keeps the permits; cancelling it gives them back, as far as they still
   count. */
int hg_reserve(hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, int64_t max_wait_ns,
               hg_decision* decision, hg_reservation** reservation);
int hg_reserve_at(hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
                  int64_t max_wait_ns, hg_decision* decision, hg_reservation** reservation);
/* HG_ERROR_NOT_FOUND: it was cancelled before, or its limiter has been freed. */
int hg_reservation_cancel(hg_reservation* reservation);
void hg_reservation_free(hg_reservation* reservation);

/* Ends, or prolongs by its ttl, the hold that decision.lease names. HG_ERROR_NOT_FOUND: it had ended. */
int hg_release(hg_limiter* limiter, const char* key, size_t key_size, uint64_t lease);
int hg_renew(hg_limiter* limiter, const char* key, size_t key_size, uint64_t lease);

/* What hg_try_acquire would answer; charges nothing. */
int hg_peek(const hg_limiter* limiter, const char* key, size_t key_size, int64_t permits, hg_decision* decision);
int hg_peek_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size, int64_t permits,
               hg_decision* decision);
/* Set statistics->struct_size first. */
int hg_statistics(const hg_limiter* limiter, const char* key, size_t key_size, hg_key_statistics* statistics);
int hg_statistics_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size,
                     hg_key_statistics* statistics);
int64_t hg_remaining(const hg_limiter* limiter, const char* key, size_t key_size);
int64_t hg_remaining_at(const hg_limiter* limiter, int64_t now_ns, const char* key, size_t key_size);
/* The wall-clock instant at which the key is whole again. */
int64_t hg_reset_time(const hg_limiter* limiter, const char* key, size_t key_size);
/* Makes the key as if it had never been seen. */
int hg_clear(hg_limiter* limiter, const char* key, size_t key_size);

/* Changes the index-th limit for all keys from the next call on; `how` is an enum hg_on_change. The strategy stays. */
int hg_set_limit(hg_limiter* limiter, const hg_limit* limit, int how, size_t index, char* error, size_t error_size);

/* Set totals->struct_size first. */
int hg_totals(const hg_limiter* limiter, hg_limiter_totals* totals);
/* Visits nothing unless track_keys is set. */
int hg_for_each_key(const hg_limiter* limiter, hg_visit visit, void* context);
/* Drops idle cells where nobody passes by, looking at up to `cells` of them. */
int hg_maintain(hg_limiter* limiter, size_t cells);

/* Writes every cell to a file, whole or not at all. */
int hg_save(const hg_limiter* limiter, const char* path, char* error, size_t error_size);
/* Reads what hg_save wrote; answers how many cells came back. Only before the first key has been seen. A torn or
   foreign file is refused and changes nothing. */
int64_t hg_restore(hg_limiter* limiter, const char* path, char* error, size_t error_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HEADGATE_HEADGATE_H */
