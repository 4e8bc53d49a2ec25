#include "quota/plan.h"

namespace headgate::quota {

const char* to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::kEnforce: return "enforce";
    case Mode::kMonitor: return "monitor";
    case Mode::kOff: return "off";
  }
  return "";
}

}  // namespace headgate::quota
