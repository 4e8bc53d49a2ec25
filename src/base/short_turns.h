// A wish to the scheduler, for threads that others wait for.
#pragma once

namespace headgate::base {

// What asks for short turns on a core gets them sooner: an answer need not wait until a thread that computes, or writes
// to disk, has had its own of some milliseconds. Linux takes it as a wish from 6.12 on, and earlier ignores it.
void ask_for_short_turns() noexcept;

}  // namespace headgate::base
