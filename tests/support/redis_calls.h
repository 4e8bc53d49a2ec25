// Calls to a Redis through a client in tests, and the notices of the client.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "store/redis/client.h"
#include "support/redis_server.h"

namespace headgate::test {

namespace redis = store::redis;

// Everything that was told.
class Witness final : public redis::Observer {
 public:
  void on_down(const std::string& why) override { add(downs_, why); }
  void on_up(Nanos /*after*/) override { ++ups_; }
  void on_problem(std::string_view kind, const std::string& text) override {
    add(problems_, std::string(kind) + ": " + text);
  }
  void on_clock(Nanos /*offset*/) override { ++clocks_; }

  [[nodiscard]] std::vector<std::string> downs() const { return copy(downs_); }
  [[nodiscard]] std::vector<std::string> problems() const { return copy(problems_); }
  [[nodiscard]] int ups() const noexcept { return ups_; }
  [[nodiscard]] int clocks() const noexcept { return clocks_; }
  // How many problems of that kind were told.
  [[nodiscard]] int told(const std::string& kind) const {
    int count = 0;
    for (const std::string& problem : problems()) count += problem.starts_with(kind + ": ") ? 1 : 0;
    return count;
  }

 private:
  void add(std::vector<std::string>& texts, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts.push_back(text);
  }
  [[nodiscard]] std::vector<std::string> copy(const std::vector<std::string>& texts) const {
    const std::lock_guard lock(mutex_);
    return texts;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> downs_;
  std::vector<std::string> problems_;
  std::atomic<int> ups_{0};
  std::atomic<int> clocks_{0};
};

// Patient, unless a test is about impatience: these machines are busy.
inline redis::Options options_for(const std::string& url) {
  redis::Options options;
  Result<redis::Url> parsed = redis::parse_url(url);
  if (!parsed) throw std::runtime_error(parsed.error().message);
  options.url = *parsed;
  options.deadline = std::chrono::seconds{2};
  options.connect_timeout = std::chrono::seconds{5};
  return options;
}

inline std::unique_ptr<redis::Client> client_for(const redis::Options& options, redis::Observer* observer = nullptr) {
  Result<std::unique_ptr<redis::Client>> client = redis::Client::make(options, observer);
  if (!client) throw std::runtime_error(client.error().message);
  return std::move(*client);
}

inline redis::Command command_of(const std::vector<std::string_view>& words, std::uint16_t slot = redis::kAnySlot) {
  redis::Command command;
  redis::append_words(words, command.wire);
  command.slot = slot;
  return command;
}

struct RedisAnswer {
  bool ok = false;
  std::string text;  // the reply, an array's elements with blanks between them; or what is wrong
  bool transient = false;
};

inline std::string text_of(const redis::Reply& reply) {
  if (reply.is_nil()) return "(nil)";
  if (reply.is_integer()) return std::to_string(reply.integer());
  if (reply.is_text()) return std::string(reply.text());
  std::string text;
  for (std::size_t i = 0; i < reply.size(); ++i) text += (i == 0 ? "" : " ") + text_of(reply[i]);
  return text;
}

inline RedisAnswer answer_of(const Result<redis::Reply>& result) {
  if (!result) return {false, result.error().message, result.error().transient};
  return {true, text_of(*result), false};
}

inline std::future<RedisAnswer> begin(redis::Client& client, redis::Command command) {
  auto promise = std::make_shared<std::promise<RedisAnswer>>();
  std::future<RedisAnswer> future = promise->get_future();
  client.call(std::move(command),
              [promise](const Result<redis::Reply>& result) { promise->set_value(answer_of(result)); });
  return future;
}

inline RedisAnswer carry(redis::Client& client, redis::Command command) {
  return begin(client, std::move(command)).get();
}
inline RedisAnswer ask(redis::Client& client, const std::vector<std::string_view>& words) {
  return carry(client, command_of(words));
}
// By the slot of the second word, which is the key.
inline RedisAnswer ask_key(redis::Client& client, const std::vector<std::string_view>& words) {
  return carry(client, command_of(words, redis::slot_of(words.at(1))));
}

}  // namespace headgate::test
