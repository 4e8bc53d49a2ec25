// The latest notices that somebody should look at, and who has.
//
// Safe for concurrent use. The newest kMost, in memory only.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "observe/notices.h"

namespace headgate::api {

struct Alert {
  observe::Notice notice;
  std::string acknowledged_by;  // empty: nobody yet
  Nanos acknowledged_at{0};
};

class Alerts final : public observe::NoticeSink {
 public:
  static constexpr std::size_t kMost = 200;

  void on_notice(const observe::Notice& notice) override;
  // Newest first.
  [[nodiscard]] std::vector<Alert> latest() const;
  [[nodiscard]] std::optional<Alert> find(std::uint64_t id) const;
  // As it is then; nullopt: there is none. The first to do so is remembered.
  std::optional<Alert> acknowledge(std::uint64_t id, const std::string& by, Nanos wall);

 private:
  mutable std::mutex mutex_;
  std::deque<Alert> alerts_;
};

}  // namespace headgate::api
