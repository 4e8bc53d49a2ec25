#include "service/caller.h"

namespace headgate::service {

Refusal refusal_of(const Error& error) {
  const auto with = [&](int status, std::string_view code) { return Refusal{status, code, error.message, Nanos{0}}; };
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return error.transient ? with(503, "unavailable") : with(400, "invalid_request");
    case ErrorCode::kNotFound: return with(404, "not_found");
    case ErrorCode::kForbidden: return with(403, "wrong_agent");
    case ErrorCode::kCorrupt:
    case ErrorCode::kTimedOut:
    case ErrorCode::kOverloaded:
    case ErrorCode::kIo: break;
  }
  return with(503, "storage_failed");
}

}  // namespace headgate::service
