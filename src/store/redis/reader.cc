#include "store/redis/reader.h"

#include <fmt/format.h>

#include <charconv>

namespace headgate::store::redis {

ReplyReader::ReplyReader(std::size_t max_bytes) : max_bytes_(max_bytes) { reset(); }

void ReplyReader::reset() {
  reader_.reset(redisReaderCreate());
  bytes_ = 0;
  elements_ = 0;
  why_.clear();
  if (reader_ == nullptr) return break_off("out of memory");
  plain_ = *reader_->fn;
  counting_ = plain_;
  counting_.createString = &ReplyReader::create_string;
  counting_.createArray = &ReplyReader::create_array;
  reader_->fn = &counting_;
  reader_->privdata = this;
}

// An array's slots are allocated when its length is read: eight bytes on the wire could ask for gigabytes.
void* ReplyReader::create_array(const redisReadTask* task, int elements) {
  auto& self = *static_cast<ReplyReader*>(task->privdata);
  self.elements_ += static_cast<std::size_t>(elements);
  return self.elements_ > kMaxElements ? nullptr : self.plain_.createArray(task, elements);
}

void* ReplyReader::create_string(const redisReadTask* task, char* text, std::size_t size) {
  auto& self = *static_cast<ReplyReader*>(task->privdata);
  self.bytes_ += size;
  return self.bytes_ > self.max_bytes_ ? nullptr : self.plain_.createString(task, text, size);
}

void ReplyReader::feed(const char* data, std::size_t size) {
  if (broken()) return;
  if (redisReaderFeed(reader_.get(), data, size) != REDIS_OK) break_off(reader_->errstr);
}

ReplyPtr ReplyReader::next() {
  if (broken()) return nullptr;
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    if (reader_->err == REDIS_ERR_OOM) {
      break_off(fmt::format("a reply of more than {} bytes or {} elements", max_bytes_, kMaxElements));
    } else {
      break_off(reader_->errstr);
    }
    return nullptr;
  }
  if (reply == nullptr) {
    if (announces_too_much()) break_off(fmt::format("a reply of more than {} bytes", max_bytes_));
    return nullptr;
  }
  bytes_ = 0;
  elements_ = 0;
  return ReplyPtr(static_cast<redisReply*>(reply));
}

// Whether what has come of the reply at hand is too much already, or says that it will be.
bool ReplyReader::announces_too_much() const noexcept {
  const char* begin = reader_->buf + reader_->pos;
  const std::size_t size = reader_->len - reader_->pos;
  if (bytes_ + size > max_bytes_ + 64) return true;
  // hiredis has taken the mark of the item at hand, and waits for the rest of it.
  if (size == 0 || reader_->ridx < 0 || reader_->rstack[reader_->ridx].type != REDIS_REPLY_STRING) return false;
  long long announced = 0;
  const auto [end, problem] = std::from_chars(begin, begin + size, announced);
  if (end == begin + size) return false;  // the number may go on
  return problem == std::errc::result_out_of_range || announced > static_cast<long long>(max_bytes_);
}

void ReplyReader::break_off(const std::string& why) { why_ = why.empty() ? "unknown" : why; }

}  // namespace headgate::store::redis
