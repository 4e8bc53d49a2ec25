#include "service/factor_audit.h"

#include <nlohmann/json.hpp>

#include "service/json.h"

namespace headgate::service {

FactorAudit::FactorAudit(Service& service)
    : service_(&service), factor_(service.engine->controls().load_state().factor) {}

void FactorAudit::on_notice(const observe::Notice& notice) {
  if (notice.kind != "adaptive") return;
  const std::lock_guard guard(mutex_);
  // What was told before this one listened is no change to it.
  if (service_ == nullptr || notice.value == factor_) return;
  state::AuditEntry entry;
  entry.time = notice.time;
  entry.who = "adaptive";
  entry.action = "adaptive.change";
  entry.before = text_of(Json{{"factor", number_json(factor_)}});
  entry.after = text_of(Json{{"factor", number_json(notice.value)}, {"why", notice.text}});
  factor_ = notice.value;
  service_->database->change({}, entry, {});
}

void FactorAudit::detach() {
  const std::lock_guard guard(mutex_);
  service_ = nullptr;
}

}  // namespace headgate::service
