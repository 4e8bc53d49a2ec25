#include "quota/postgres_link.h"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace headgate::quota {
namespace {

// So that a server which has vanished, without a word, is noticed within seconds.
const std::map<std::string, std::string>& our_settings() {
  static const std::map<std::string, std::string> kSettings{
      {"connect_timeout", "3"},        {"keepalives", "1"},       {"keepalives_idle", "5"},
      {"keepalives_interval", "2"},    {"keepalives_count", "3"}, {"tcp_user_timeout", "10000"},
      {"application_name", "headgate"}};
  return kSettings;
}

std::string quoted(const std::string& value) {
  std::string text = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

// On one line, without libpq's trailing line feed.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return std::string(base::trimmed(line));
}

}  // namespace

Result<PostgresAddress> parse_postgres(const std::string& url) {
  const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> parsed(
      PQconninfoParse(url.c_str(), nullptr), [](PQconninfoOption* options) { PQconninfoFree(options); });
  if (parsed == nullptr) {
    // libpq would quote the part that it does not understand, which may be the password.
    return Error{ErrorCode::kInvalidArgument,
                 "the ledger's address must be like postgresql://user:password@host:5432/name (it is not shown here, "
                 "since it may hold a password)"};
  }
  std::map<std::string, std::string> given;
  for (const PQconninfoOption* option = parsed.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr && *option->val != '\0') given[option->keyword] = option->val;
  }
  const auto part = [&](const char* name) { return given.contains(name) ? given[name] : std::string(); };
  PostgresAddress address;
  const std::string user = part("user");
  const std::string port = part("port");
  address.shown = "postgresql://" + user + (user.empty() ? "" : "@") +
                  (given.contains("host") ? part("host") : part("hostaddr")) + (port.empty() ? "" : ":") + port + "/" +
                  part("dbname");
  given["client_encoding"] = "UTF8";
  for (const auto& [key, value] : our_settings()) given.try_emplace(key, value);
  for (const auto& [key, value] : given) address.conninfo += key + "=" + quoted(value) + " ";
  return address;
}

PostgresLink::PostgresLink(PostgresAddress address, Nanos patience, Prepare prepare)
    : address_(std::move(address)), patience_(patience), prepare_(std::move(prepare)) {}

void PostgresLink::connect() {
  connection_ = std::make_unique<pqxx::connection>(address_.conninfo);
  quiet_ = std::make_unique<pqxx::quiet_errorhandler>(*connection_);
  const SocketWatch::Guard guard(watch_, connection_->sock(), patience_);
  pqxx::nontransaction work(*connection_);
  // What we have given up on must end at the server too. A server whose commits are not on disk would break our word.
  // A little before we do, so that it can say why.
  const std::int64_t patience_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count();
  work.exec(
      fmt::format("SET statement_timeout = {}; SET lock_timeout = {}; SET client_min_messages = warning; "
                  "SET idle_in_transaction_session_timeout = 60000",
                  std::max<std::int64_t>(1, patience_ms * 9 / 10), std::max<std::int64_t>(1, patience_ms * 3 / 4)));
  work.exec("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'");
  prepare_(*connection_);
}

std::optional<PostgresLink::Failure> PostgresLink::run(const std::function<void(pqxx::connection_base&)>& work) {
  bool sent = false;
  try {
    // libpqxx would connect again by itself, but without our settings.
    if (connection_ == nullptr || !connection_->is_open()) connect();
    const SocketWatch::Guard guard(watch_, connection_->sock(), patience_);
    sent = true;
    work(*connection_);
    return std::nullopt;
  } catch (const pqxx::broken_connection& e) {
    return away(e.what(), sent);
  } catch (const pqxx::sql_error& e) {
    return failure_of(e);
  } catch (const std::exception& e) {
    // Whatever else libpqxx finds wrong with a connection.
    return away(e.what(), sent);
  }
}

PostgresLink::Failure PostgresLink::away(std::string_view why, bool sent) {
  connection_.reset();
  return {Error{ErrorCode::kIo,
                fmt::format("{}: PostgreSQL cannot be reached ({}); see that it runs and that this address, user and "
                            "password are right",
                            address_.shown, one_line(why)),
                true},
          sent};
}

PostgresLink::Failure PostgresLink::failure_of(const pqxx::sql_error& e) {
  const std::string& state = e.sqlstate();
  const bool open = connection_ != nullptr && connection_->is_open();
  // 57P..: it is shutting down; 08...: the connection; none: there was no answer.
  if (!open || state.empty() || state.starts_with("57P") || state.starts_with("08")) return away(e.what(), true);
  Error error{ErrorCode::kIo, {}, true};
  if (state == "53100") {
    error.message = fmt::format("{}: its disk is full; make room, and writing goes on by itself", address_.shown);
  } else if (state == "25006") {
    error.message = fmt::format("{}: is read-only, as a standby is; give the address of the primary", address_.shown);
  } else if (state == "42501") {
    error.message =
        fmt::format("{}: {}; let this user create and use tables in that database", address_.shown, one_line(e.what()));
  } else {
    error.message = fmt::format("{}: {}", address_.shown, one_line(e.what()));
    error.transient = state.starts_with("40") || state.starts_with("53") || state.starts_with("55") || state == "57014";
  }
  return {std::move(error), false};
}

}  // namespace headgate::quota
