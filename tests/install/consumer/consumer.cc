#include <headgate/limiter.h>

#include <iostream>

int main() {
  using namespace std::chrono_literals;
  auto burst = headgate::Limit::token_bucket({.capacity = 3, .refill_rate = {1, 1s}});
  // A quota needs the time zone library, which a static headgate must bring along.
  auto daily = headgate::Limit::quota({.limit = 100, .period = headgate::Period::kDay, .timezone = "Europe/Paris"});
  if (!burst || !daily) return 1;

  headgate::ManualClock clock{1'700'000'000s};
  auto limiter = headgate::MemoryLimiter::make(headgate::Options().limit(*burst).limit(*daily).clock(clock));
  if (!limiter) return 1;
  int allowed = 0;
  for (int i = 0; i < 5; ++i) allowed += (*limiter)->try_acquire("agent-7").allowed() ? 1 : 0;
  clock.advance(1s);
  std::cout << allowed << " of 5, then " << (*limiter)->try_acquire("agent-7").allowed() << "\n";
}
