// Any bytes as the URL of a Redis: refused with a message of bounded length, or every part is within its bounds.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/redis/url.h"

namespace {

using namespace headgate;
namespace redis = store::redis;

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<redis::Url> url = redis::parse_url({reinterpret_cast<const char*>(data), size});
  if (!url) {
    check(url.error().message.starts_with("redis url: ") && url.error().message.size() < 400);
    return 0;
  }
  check(!url->endpoints.empty() && url->endpoints.size() <= redis::kMaxUrlEndpoints);
  check(url->kind != redis::Url::Kind::kStandalone || url->endpoints.size() == 1);
  check((url->kind == redis::Url::Kind::kSentinel) == !url->master.empty());
  check(url->password.size() <= size && url->user.size() <= size);
  for (const redis::Endpoint& endpoint : url->endpoints) {
    check(endpoint.path.empty() == (endpoint.port != 0) && endpoint.path.empty() != endpoint.host.empty());
    // What is printed for an endpoint is read as the same one.
    if (!endpoint.path.empty()) continue;
    const Result<redis::Url> again = redis::parse_url("redis://" + redis::text_of(endpoint));
    check(again && again->endpoints.front() == endpoint);
  }
  return 0;
}
