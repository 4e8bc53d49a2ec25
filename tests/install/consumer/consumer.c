#include <headgate/headgate.h>
#include <stdio.h>

int main(void) {
  hg_limit limit = {.strategy = HG_TOKEN_BUCKET,
                    .as = {.token_bucket = {.capacity = 3, .refill_rate = {1, HG_SECOND}}}};
  hg_options options;
  hg_options_init(&options, sizeof options);
  options.limits = &limit;
  options.limit_count = 1;
  char error[HG_ERROR_TEXT_SIZE];
  hg_limiter* limiter = hg_limiter_new(&options, error, sizeof error);
  if (limiter == NULL) {
    puts(error);
    return 1;
  }
  int allowed = 0;
  for (int i = 0; i < 6; ++i) {
    hg_decision decision;
    /* Five calls at one instant, and one a second later. */
    hg_try_acquire_at(limiter, i < 5 ? 0 : HG_SECOND, "agent-7", 7, 1, &decision);
    if (i == 5) printf("%d of 5, then %d\n", allowed, decision.verdict == HG_ALLOWED);
    allowed += decision.verdict == HG_ALLOWED;
  }
  hg_limiter_free(limiter);
  return 0;
}
