// One connection to PostgreSQL, made when it is needed and dropped when it breaks.
//
// One thread at a time. Nothing here, messages included, ever shows a password.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <pqxx/pqxx>
#include <string>

#include "headgate/result.h"
#include "quota/socket_watch.h"

namespace headgate::quota {

struct PostgresAddress {
  std::string conninfo;  // with our time-outs where the user named none; holds the password
  std::string shown;     // "postgresql://user@host:5432/name"
};
// Takes a URL or key=value pairs, as libpq does.
[[nodiscard]] Result<PostgresAddress> parse_postgres(const std::string& url);

class PostgresLink {
 public:
  // `patience`: how long one call of run() may take once connected; connecting has its own bound of seconds.
  // `prepare` is called with every new connection.
  using Prepare = std::function<void(pqxx::connection_base&)>;
  PostgresLink(PostgresAddress address, Nanos patience, Prepare prepare);

  struct Failure {
    Error error;
    bool lost = false;  // the connection: whether the last statement took effect is not known
  };
  // Calls `work` with a connection. What it throws becomes a Failure.
  [[nodiscard]] std::optional<Failure> run(const std::function<void(pqxx::connection_base&)>& work);

  [[nodiscard]] const std::string& shown() const noexcept { return address_.shown; }

 private:
  void connect();
  [[nodiscard]] Failure failure_of(const pqxx::sql_error& e);
  [[nodiscard]] Failure away(std::string_view why, bool sent);

  const PostgresAddress address_;
  const Nanos patience_;
  const Prepare prepare_;
  SocketWatch watch_;
  std::unique_ptr<pqxx::quiet_errorhandler> quiet_;  // outlives the connection, which has things to say as it closes
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace headgate::quota
