#include "base/text.h"

#include <array>

namespace headgate::base {

std::string format_duration(Nanos duration) {
  struct Unit {
    std::int64_t nanos;
    const char* name;
  };
  constexpr std::array<Unit, 7> kUnits{{{86'400'000'000'000, "d"},
                                        {3'600'000'000'000, "h"},
                                        {60'000'000'000, "m"},
                                        {1'000'000'000, "s"},
                                        {1'000'000, "ms"},
                                        {1'000, "us"},
                                        {1, "ns"}}};
  const std::int64_t nanos = duration.count();
  if (nanos == 0) return "0s";
  if (nanos == 60'000'000'000) return "60s";  // how people write a minute's window
  for (const Unit& unit : kUnits) {
    if (nanos % unit.nanos == 0) return std::to_string(nanos / unit.nanos) + unit.name;
  }
  return std::to_string(nanos) + "ns";
}

std::string format_rate(Rate rate) {
  std::string per = format_duration(rate.per);
  if (rate.per == std::chrono::minutes{1}) per = "m";
  if (per.size() == 2 && per[0] == '1') per.erase(0, 1);
  return std::to_string(rate.units) + "/" + per;
}

}  // namespace headgate::base
