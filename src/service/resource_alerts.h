// Raises alerts when something that the server itself needs runs short: cells, disk, memory.
//
// For one thread, which calls tick() about once a second.
#pragma once

#include <string>

#include "control/sensors.h"
#include "service/service.h"

namespace headgate::service {

struct ResourceBounds {
  std::size_t max_cells = 0;
  std::size_t max_caller_cells = 0;  // of limits that callers name; 0: half
  std::string data{};                // the folder whose disk is watched; empty: none is
  int disk_reserve_percent = 0;
};

class ResourceAlerts {
 public:
  // `service` outlives it.
  ResourceAlerts(Service& service, ResourceBounds bounds) : service_(service), bounds_(std::move(bounds)) {}

  // `shed`: connections that were closed for want of memory so far.
  void tick(Nanos wall, std::uint64_t shed);
  void memory_high(const control::Sensors::OwnMemory& memory);

 private:
  struct Cells {
    std::size_t used = 0;
    std::size_t most = 0;
    const char* what = "";
  };
  // Alerts once when cells run short, and again only after there was room for a while.
  void watch_cells(bool& alerted, const Cells& cells, Nanos wall);
  // Whether executions may still be written: not below the reserve, and again once there is a quarter more than that.
  void watch_disk(Nanos wall);
  // Logs failed allocations and closed connections, at most once in ten seconds.
  void watch_shortage(Nanos wall, std::uint64_t shed);

  Service& service_;
  const ResourceBounds bounds_;
  bool cells_alerted_ = false;
  bool caller_cells_alerted_ = false;
  std::uint64_t shed_ = 0;
  std::uint64_t shortages_ = 0;
  Nanos shortage_logged_{0};
};

}  // namespace headgate::service
