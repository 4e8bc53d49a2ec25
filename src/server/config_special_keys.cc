#include "server/config_special_keys.h"

#include <fmt/format.h>

#include "api/http/gate_trust.h"
#include "server/config_key_kinds.h"
#include "store/redis/url.h"

namespace headgate::server {

ConfigKey store_url_key() {
  ConfigKey key = text_key(
      "store.url",
      "With redis: redis://user:password@host:6379/0, rediss:// for TLS, redis+sentinel://host:port,host:port/master\n"
      "or redis+cluster://host:port,host:port. Better given as a variable if it holds a password.",
      [](auto& config) -> auto& { return config.store.url; });
  const auto set_text = key.set;
  key.set = [set_text](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    if (text == nullptr || !is_fine(*text)) return "must be the URL of a Redis";  // its password is not for messages
    if (!text->empty()) {
      if (const auto url = store::redis::parse_url(*text); !url) return url.error().message;
    }
    return set_text(config, value);
  };
  key.is_secret = [](const Config&) { return true; };
  return key;
}

ConfigKey database_key() {
  ConfigKey key = text_key(
      "database",
      "Where things are kept: sqlite (headgate.db under data), or sqlite:/path/file.db; the ledger of executions and\n"
      "usage in a file beside it. Or postgres://user:password@host/db for the ledger, which several servers may "
      "share;\n"
      "tokens, settings, policy versions and the audit log are then in headgate.db under data. Better given as a\n"
      "variable if it holds a password.",
      [](auto& config) -> auto& { return config.database; });
  const auto set_text = key.set;
  key.set = [set_text](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    const bool sqlite = text != nullptr && (*text == "sqlite" || (text->starts_with("sqlite:") && text->size() > 7));
    const bool postgres =
        text != nullptr && (text->starts_with("postgres://") || text->starts_with("postgresql://")) && is_fine(*text);
    if (!sqlite && !postgres) {
      // A password is not for messages.
      if (text != nullptr && text->find('@') != std::string::npos) {
        return "must be sqlite, sqlite:/path/file.db or postgres://user:password@host/db";
      }
      return must_be("sqlite, sqlite:/path/file.db or postgres://user:password@host/db", value);
    }
    return set_text(config, value);
  };
  key.is_secret = [](const Config& config) { return config.ledger_in_postgres(); };
  return key;
}

ConfigKey timezone_key() {
  ConfigKey key = text_key(
      "quotas.timezone", "Where days, weeks and months begin, unless a plan or a user says otherwise: an IANA name.",
      [](auto& config) -> auto& { return config.quotas.book.timezone; });
  const auto set_text = key.set;
  key.set = [set_text](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    if (text == nullptr) return must_be("the name of a time zone", value);
    if (const Result<void> known = quota::check_timezone(*text); !known) return known.error().message;
    return set_text(config, value);
  };
  return key;
}

ConfigKey gate_trust_key() {
  ConfigKey key = list_key(
      "gate.trust",
      "Headers that /v1/gate believes, since every proxy that asks it sets or clears them: agent, operation, session,\n"
      "user, context, cost (X-Headgate-Agent and so on) and forwarded_for (X-Forwarded-For). Others are not read.",
      [](auto& config) -> auto& { return config.gate_trust; });
  const auto set_list = key.set;
  key.set = [set_list](Config& config, const Value& value) -> std::string {
    api::GateTrust trust;
    for (const std::string& item : value.items) {
      if (api::trust_header(trust, item)) continue;
      return fmt::format("must be a list of agent, operation, session, user, context, cost and forwarded_for, got {}",
                         quoted(item));
    }
    return set_list(config, value);
  };
  return key;
}

ConfigKey webhook_url_key() {
  ConfigKey key = text_key(
      "webhook.url", "Notices are posted there as JSON: http:// or https://. Empty: nowhere.",
      [](auto& config) -> auto& { return config.webhook.url; });
  const auto set_text = key.set;
  key.set = [set_text](Config& config, const Value& value) -> std::string {
    const std::string* text = text_of(value);
    if (text != nullptr && !text->empty() && !text->starts_with("http://") && !text->starts_with("https://")) {
      return "must begin with http:// or https://";  // the rest may hold a password
    }
    return set_text(config, value);
  };
  // A user and a password stand before an @ in the authority.
  key.is_secret = [](const Config& config) {
    const std::string& url = config.webhook.url;
    const std::size_t begin = url.find("://");
    return begin != std::string::npos &&
           url.substr(begin + 3, url.find_first_of("/?#", begin + 3) - begin - 3).find('@') != std::string::npos;
  };
  return key;
}

ConfigKey kept_for_key() {
  ConfigKey key = list_key(
      "limits.kept_for", "Addresses and networks that connections are kept for, besides unix sockets.",
      [](auto& config) -> auto& { return config.kept_for; });
  const auto set_list = key.set;
  key.set = [set_list](Config& config, const Value& value) -> std::string {
    for (const std::string& item : value.items) {
      if (const auto network = net::parse_network(item); !network) return network.error().message;
    }
    return set_list(config, value);
  };
  return key;
}

}  // namespace headgate::server
