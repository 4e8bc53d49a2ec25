// Sends a command to a redis-server and waits for the reply.
#pragma once

#include <hiredis/hiredis.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "store/redis/command.h"

namespace headgate::test {

// Says a command and waits for the answer, one at a time: a Caller for tests that need no other.
class PlainCaller final : public store::redis::Caller {
 public:
  explicit PlainCaller(int port) : context_(::redisConnect("127.0.0.1", port), ::redisFree) {
    if (context_ == nullptr || context_->err != 0) throw std::runtime_error("no connection to redis-server");
  }

  void call(store::redis::Command command, Done done) override {
    ++calls;
    Reply reply = say(command.wire);
    if (command.script != nullptr && reply->type == REDIS_REPLY_ERROR &&
        std::string_view(reply->str).starts_with("NOSCRIPT")) {
      const std::string_view words[] = {"SCRIPT", "LOAD", command.script->text};
      std::string load;
      store::redis::append_words(words, load);
      if (const Reply loaded = say(load); std::string(loaded->str) != command.script->sha1) {
        throw std::runtime_error("SCRIPT LOAD: " + std::string(loaded->str));
      }
      reply = say(command.wire);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
      done(Error{ErrorCode::kIo, std::string(reply->str, reply->len)});
    } else {
      done(store::redis::Reply(reply.get()));
    }
  }

  // A command and its answer as text or number, for what tests look at.
  std::string ask(const std::vector<std::string_view>& words) {
    std::string wire;
    store::redis::append_words(words, wire);
    const Reply reply = say(wire);
    if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
    return reply->str == nullptr ? std::string() : std::string(reply->str, reply->len);
  }

  int calls = 0;

 private:
  using Reply = std::unique_ptr<redisReply, void (*)(void*)>;
  Reply say(const std::string& wire) {
    void* reply = nullptr;
    if (::redisAppendFormattedCommand(context_.get(), wire.data(), wire.size()) != REDIS_OK ||
        ::redisGetReply(context_.get(), &reply) != REDIS_OK) {
      throw std::runtime_error(std::string("redis: ") + context_->errstr);
    }
    return {static_cast<redisReply*>(reply), ::freeReplyObject};
  }

  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

}  // namespace headgate::test
