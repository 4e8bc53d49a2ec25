// Keeps the emergency throttle on disk, whether an operator, a signal or the load has turned it on.
//
// Safe for concurrent use.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "service/service.h"

namespace headgate::service {

// As it is kept, and read by other nodes; `here` is the name of this one.
[[nodiscard]] std::string emergency_setting(const control::Emergency& state, const std::string& here);
// nullopt: it is not what emergency_setting() writes.
[[nodiscard]] std::optional<control::Emergency> emergency_of_setting(const std::string& text, const std::string& here);

// Hears of every change by a notice; those that came by API are on disk by then, so it writes the others.
class EmergencyKeeper final : public observe::NoticeSink {
 public:
  explicit EmergencyKeeper(Service& service) : service_(&service) {}
  void on_notice(const observe::Notice& notice) override;
  // Touches nothing any more, since what it touches is going away.
  void detach();

 private:
  std::mutex mutex_;
  Service* service_;
};

}  // namespace headgate::service
