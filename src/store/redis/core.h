// What the parts of a client share. All of it belongs to the client's thread, but where it says otherwise.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "store/redis/connection.h"
#include "store/redis/loop.h"
#include "store/redis/options.h"
#include "store/redis/problems.h"
#include "store/redis/request.h"

namespace headgate::store::redis {

struct Core {
  Core(const Options& wanted, Observer& told, std::shared_ptr<const TlsRules> rules);

  const Options options;
  Observer& observer;
  const std::shared_ptr<const TlsRules> tls;  // null: without
  const Nanos patience;                       // with answers to what the client itself asks
  Loop loop;
  Requests requests;  // safe for concurrent use as far as it says

  [[nodiscard]] Connection::Rules rules(Greeting greeting) const;
  // Tells the observer, if it has just begun.
  void report(std::string_view kind, const std::string& text);
  [[nodiscard]] double dice() { return std::uniform_real_distribution<>()(random_); }

 private:
  Problems problems_;
  std::mt19937_64 random_{std::random_device{}()};
};

// The first word of an error reply.
[[nodiscard]] std::string_view word_of(std::string_view text) noexcept;
// What is wrong by an error reply: its text, and whether it may pass.
[[nodiscard]] Error error_of(std::string_view text);

}  // namespace headgate::store::redis
