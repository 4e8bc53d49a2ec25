// The Keeper does what must happen by itself: it serves checks that wait, ends leases whose time is over, sweeps cells,
// reads the sensors, watches its own memory, and counts the seconds.
//
// One thread of its own. wake() may be called by anyone, and costs a lock and a notification.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "control/sensors.h"
#include "engine/engine.h"

namespace headgate::server {

struct KeeperOptions {
  bool sensors = false;
  std::size_t memory_limit = 0;  // bytes; 0: as the sensors find it
  // Once when the process has more than kMemoryHigh of its limit, and again only after it had less than kMemoryCalm.
  std::function<void(const control::Sensors::OwnMemory&)> memory_high{};
  std::function<void(Nanos wall)> every_second;
};

class Keeper {
 public:
  static constexpr double kMemoryHigh = 0.8;
  static constexpr double kMemoryCalm = 0.75;
  Keeper(engine::Engine& engine, KeeperOptions options);
  ~Keeper();  // ends the thread
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void start();
  void wake();

 private:
  void run();
  void watch_memory();

  engine::Engine& engine_;
  KeeperOptions options_;
  control::Sensors sensors_;
  bool memory_is_high_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace headgate::server
