// One request with its caller and its reply, as handlers get it, and how handlers read it.
//
// Internal to src/api.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/http/answer.h"
#include "api/http/context.h"
#include "service/json.h"

namespace headgate::api {

using service::fields_of;
using service::Json;
using service::json_of;
using service::number_json;
using service::text_of;
using service::text_or_null;

// Borrowed, and valid until the handler returns.
struct Call {
  Context& context;
  const net::HttpRequest& request;
  net::HttpReply& reply;
  const service::Caller& caller;
  std::string id{};          // what stands for {id} in the path, decoded
  std::string request_id{};  // echoed or made

  [[nodiscard]] service::Service& service() const noexcept { return context.service; }
  // The present, by the wall clock.
  [[nodiscard]] Nanos wall() const { return service().clock->wall(service().clock->now()); }
  // For the audit log.
  [[nodiscard]] const std::string& who() const noexcept { return caller.who; }

  void send(const Json& body, int status = 200, std::string_view headers = {}) const;
  void send(const net::HttpAnswer& answer) const;
  void fail(int status, std::string_view code, std::string_view message, std::string_view headers = {}) const;
  // With the status that its code stands for.
  void fail(const Error& error) const;
  void fail(const service::Refusal& refusal) const;
};

// A body as an object with no other fields than these; nullopt: it has been answered with 400.
[[nodiscard]] std::optional<Json> body_of(const Call& call, std::span<const std::string_view> fields);
// Epoch milliseconds, or a span's, rounded down.
[[nodiscard]] constexpr std::int64_t millis(Nanos time) noexcept { return time.count() / 1'000'000; }
// Whether the query names nothing but these, and can be decoded; false: answered with 400. A parameter that is ignored
// would pass for a filter.
[[nodiscard]] bool query_fits(const Call& call, std::span<const std::string_view> names);
struct Range {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
// A whole number from the query, or `otherwise` if there is none; nullopt: it was answered with 400.
[[nodiscard]] std::optional<std::int64_t> query_number(const Call& call, std::string_view name, std::int64_t otherwise,
                                                       Range range);
// Whether text is a name that an agent, policy or token may have; if not, the call has been answered with 400.
[[nodiscard]] bool is_name(const Call& call, std::string_view what, std::string_view text);

}  // namespace headgate::api
