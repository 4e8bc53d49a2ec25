// The latest notices that a person should look at, and who has.
//
// Safe for concurrent use. In memory only: the newest kMostOfKind of each kind, so that many of one kind leave those of
// another alone. One condition is one alert, which counts what comes again within the cool-down of the last.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "observe/notices.h"

namespace headgate::service {

struct Alert {
  observe::Notice notice;  // the latest; its id is that of the first
  std::uint64_t count = 1;
  Nanos first_at{0};            // wall clock
  std::string acknowledged_by;  // empty: not yet
  Nanos acknowledged_at{0};
};

class Alerts final : public observe::NoticeSink {
 public:
  static constexpr std::size_t kMostOfKind = 100;

  void on_notice(const observe::Notice& notice) override;
  void on_repeat(const observe::Notice& notice) override { on_notice(notice); }
  // Newest first.
  [[nodiscard]] std::vector<Alert> latest() const;
  [[nodiscard]] std::optional<Alert> find(std::uint64_t id) const;
  // As it is then; nullopt: there is none. The first to do so is remembered.
  std::optional<Alert> acknowledge(std::uint64_t id, const std::string& by, Nanos wall);

 private:
  // The alert of that condition, if it came within the cool-down; end(): there is none.
  [[nodiscard]] std::deque<Alert>::iterator of_condition(const observe::Notice& notice);

  mutable std::mutex mutex_;
  std::deque<Alert> alerts_;
};

}  // namespace headgate::service
