#include "api/access_request.h"

#include "base/ascii.h"
#include "base/text.h"

namespace headgate::api {

service::AccessRequest access_request(const net::HttpRequest& request) noexcept {
  service::AccessRequest access;
  const auto add = [](const net::Header& header, service::AccessRequest::Header& to) {
    if (to.count++ == 0) to.value = base::trimmed(header.value);
  };
  for (const net::Header& header : request.headers) {
    switch (header.name.size()) {
      case 4:
        if (base::equals_ignoring_case(header.name, "host")) add(header, access.host);
        break;
      case 6:
        if (base::equals_ignoring_case(header.name, "origin")) {
          add(header, access.origin);
        } else if (base::equals_ignoring_case(header.name, "cookie") &&
                   access.cookie_count < service::AccessRequest::kMostCookies) {
          access.cookie_lines[access.cookie_count++] = header.value;
        }
        break;
      case 13:
        if (base::equals_ignoring_case(header.name, "authorization")) add(header, access.authorization);
        break;
      default: break;
    }
  }
  if (request.peer != nullptr) access.peer = view_of(*request.peer);
  return access;
}

}  // namespace headgate::api
