// Replies out of bytes, within bounds: hiredis parses, and what a server makes us hold is counted.
#pragma once

#include <hiredis/hiredis.h>

#include <memory>
#include <string>

namespace headgate::store::redis {

struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using ReplyPtr = std::unique_ptr<redisReply, FreeReply>;

class ReplyReader {
 public:
  // A reply that holds more bytes of text, or more elements, than this is a protocol error.
  static constexpr std::size_t kMaxElements = 1'000'000;
  explicit ReplyReader(std::size_t max_bytes);
  ReplyReader(const ReplyReader&) = delete;
  ReplyReader& operator=(const ReplyReader&) = delete;

  void feed(const char* data, std::size_t size);
  // Null: there is no whole reply yet, or broken().
  [[nodiscard]] ReplyPtr next();
  [[nodiscard]] bool broken() const noexcept { return !why_.empty(); }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  void reset();  // for a new connection

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
  };
  static void* create_string(const redisReadTask* task, char* text, std::size_t size);
  static void* create_array(const redisReadTask* task, int elements);
  [[nodiscard]] bool announces_too_much() const noexcept;
  void break_off(const std::string& why);

  std::size_t max_bytes_;
  redisReplyObjectFunctions counting_{};  // hiredis's own functions, behind ours
  redisReplyObjectFunctions plain_{};
  std::unique_ptr<redisReader, Free> reader_;
  std::size_t bytes_ = 0;     // of the reply at hand
  std::size_t elements_ = 0;  // of the reply at hand
  std::string why_;
};

}  // namespace headgate::store::redis
