// Temporary: replaced by the control branch.
#pragma once
#include "headgate/clock.h"
namespace headgate::control {
struct AdaptiveSettings {
  double high = 0.8;
  double low = 0.3;
  double high_factor = 0.5;
  double low_factor = 1.25;
  double margin = 0.05;
  Nanos dwell{std::chrono::seconds{10}};
  double emergency_at = 0.9;
  double emergency_factor = 0.1;
  double emergency_margin = 0.1;
  bool enabled = true;
  bool auto_emergency = true;
};
}  // namespace headgate::control
