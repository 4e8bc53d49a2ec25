// Writes down every change of the factor that limits are multiplied by, whatever brought it about: the load, a report
// that was withdrawn, the emergency throttle.
//
// Safe for concurrent use.
#pragma once

#include <mutex>

#include "service/service.h"

namespace headgate::service {

class FactorAudit final : public observe::NoticeSink {
 public:
  explicit FactorAudit(Service& service);
  void on_notice(const observe::Notice& notice) override;
  // Touches nothing any more, since what it touches is going away.
  void detach();

 private:
  std::mutex mutex_;
  Service* service_;
  double factor_;  // as it was last written down, or at first
};

}  // namespace headgate::service
