#include "api/factor_audit.h"

#include "api/call.h"
#include "observe/log.h"

namespace headgate::api {

FactorAudit::FactorAudit(Service& service) : service_(&service), factor_(service.engine->load_state().factor) {}

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
  if (const Result<void> saved = service_->database->change({}, entry); !saved) {
    observe::log(observe::LogLevel::kError, "a change of the limits was not written to the audit log",
                 {{"problem", std::string_view(saved.error().message)}});
  }
}

void FactorAudit::detach() {
  const std::lock_guard guard(mutex_);
  service_ = nullptr;
}

}  // namespace headgate::api
