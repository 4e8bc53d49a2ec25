#include "service/resource_alerts.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "base/memory_reserve.h"
#include "observe/log.h"
#include "service/quotas.h"

namespace headgate::service {
namespace {

constexpr double kBytesPerMebibyte = 1 << 20;

}  // namespace

void ResourceAlerts::tick(Nanos wall, std::uint64_t shed) {
  watch_shortage(wall, shed);
  const std::size_t callers = bounds_.max_caller_cells == 0 ? bounds_.max_cells / 2 : bounds_.max_caller_cells;
  watch_cells(cells_alerted_, {service_.engine->cells().count(), bounds_.max_cells, "cells (store.max_cells)"}, wall);
  watch_cells(
      caller_cells_alerted_,
      {service_.engine->own_limits().cells(), callers, "cells of limits that callers name (store.max_caller_cells)"},
      wall);
  watch_disk(wall);
}

void ResourceAlerts::watch_cells(bool& alerted, const Cells& cells, Nanos wall) {
  constexpr double kAlertFrom = 0.8;
  constexpr double kOverBelow = 0.7;
  const double used = static_cast<double>(cells.used) / static_cast<double>(std::max<std::size_t>(cells.most, 1));
  if (used < kOverBelow) alerted = false;
  if (used < kAlertFrom || std::exchange(alerted, true)) return;
  service_.notices->tell({.kind = "cells_full",
                          .time = wall,
                          .text = fmt::format("{} of {} {} are in use; at the last one, store.at_cap says what happens",
                                              cells.used, cells.most, cells.what),
                          .value = used});
}

void ResourceAlerts::watch_disk(Nanos wall) {
  if (service_.quotas == nullptr || bounds_.data.empty() || bounds_.disk_reserve_percent == 0) return;
  struct statvfs disk {};
  if (::statvfs(bounds_.data.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
  const double all = static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize);
  const double left = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  constexpr double kLeast = 256 * kBytesPerMebibyte;
  const double reserve = std::min(std::max(all * bounds_.disk_reserve_percent / 100, kLeast), all / 2);
  const bool was_low = service_.quotas->disk_low();
  const bool low = left < (was_low ? 1.25 * reserve : reserve);
  if (low == was_low) return;
  service_.quotas->set_disk_low(low);
  const std::string recorded =
      low ? fmt::format("not recorded below {:.0f} MiB", reserve / kBytesPerMebibyte) : "recorded again";
  service_.notices->tell(
      {.kind = low ? "disk_low" : "disk_enough",
       .time = wall,
       .text = fmt::format("{:.0f} of {:.0f} MiB are free under {}; executions are {}", left / kBytesPerMebibyte,
                           all / kBytesPerMebibyte, bounds_.data, recorded)});
}

void ResourceAlerts::watch_shortage(Nanos wall, std::uint64_t shed) {
  constexpr Nanos kLogEvery = std::chrono::seconds{10};
  if (wall - shortage_logged_ < kLogEvery) return;
  const std::uint64_t shortages = base::memory_shortages();
  if (shed == shed_ && shortages == shortages_) return;
  observe::log(observe::LogLevel::kWarn, "memory was short; connections that held unfinished requests were closed",
               {{"closed", static_cast<std::int64_t>(shed - shed_)},
                {"allocations_failed", static_cast<std::int64_t>(shortages - shortages_)}});
  shed_ = shed;
  shortages_ = shortages;
  shortage_logged_ = wall;
}

void ResourceAlerts::memory_high(const control::Sensors::OwnMemory& memory) {
  const double share = static_cast<double>(memory.used) / static_cast<double>(memory.limit);
  service_.notices->tell(
      {.kind = "memory",
       .time = service_.clock->wall(service_.clock->now()),
       .text = fmt::format("the server uses {:.0f} of {:.0f} MiB of memory, {:.0f} %; store.max_cells and "
                           "limits.connections bound what it needs",
                           static_cast<double>(memory.used) / kBytesPerMebibyte,
                           static_cast<double>(memory.limit) / kBytesPerMebibyte, 100 * share),
       .value = share});
}

}  // namespace headgate::service
