// What the engine has to tell besides its answers. Events are rare: the allowed path makes none.
#pragma once

#include <string_view>

#include "headgate/clock.h"

namespace headgate::engine {

// All text is borrowed and valid during the call only.
struct Event {
  enum class Kind : std::uint8_t {
    kViolation,         // an enforced policy was exceeded, and the check denied
    kExceeded,          // a policy that warns or logs was exceeded
    kMonitored,         // a monitored policy would have denied
    kWarning,           // warn_at was crossed
    kEscalation,        // `to` is to hear of it
    kSustainedAbuse,    // ten violations in five minutes, told once
    kUnknownOperation,  // on no tier's list, told once
    kLeaseExpired,      // a hold came back by itself
    kOverrun,           // a settled cost did not fit any more
    kEmergency,         // the emergency throttle went on or off
    kAdaptive,          // limits were scaled
    kCellsFull,         // an agent has as many cells as one agent may have
    kReload,            // policies were replaced
  };
  Kind kind = Kind::kViolation;
  Nanos time{0};  // wall clock
  std::string_view agent{};
  std::string_view operation{};
  std::string_view policy_id{};
  std::string_view to{};      // kEscalation
  std::string_view action{};  // kExceeded: "warn" or "log"
  std::string_view text{};    // for people
  double value = 0;           // retry after (ms), factor, overrun: whatever the kind counts
};
[[nodiscard]] const char* to_string(Event::Kind kind) noexcept;

// Called on the path of a check, by any thread: hand it on, do not work on it.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(const Event& event) noexcept = 0;
};

}  // namespace headgate::engine
