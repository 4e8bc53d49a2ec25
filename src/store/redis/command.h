// Commands to Redis and its replies, whatever connection carries them.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "headgate/clock.h"
#include "headgate/result.h"

struct redisReply;

namespace headgate::store::redis {

// A script that a server may have to be told first.
struct Script {
  std::string_view text;
  std::string sha1;  // lower-case hex
};

// REQUIRES: `text` lives as long as the script.
[[nodiscard]] Script make_script(std::string_view text);

// Cluster slots are 0 to 16383.
inline constexpr std::uint16_t kAnySlot = 0xFFFF;  // any server that takes writes will do

struct Command {
  std::string wire;                // in Redis protocol: an array of bulk strings
  std::uint16_t slot = kAnySlot;   // of its keys, which all lie in one
  const Script* script = nullptr;  // with EVALSHA: loaded where the server says NOSCRIPT, then said again
  Nanos asked{0};                  // by steady_now(), its deadline counts from then; 0: from when it is called
  bool hear_late = false;          // should it be answered after its deadline: `done` is then called once more
};

[[nodiscard]] Nanos steady_now() noexcept;

void append_array(std::size_t size, std::string& wire);  // that many bulk strings follow
void append_bulk(std::string_view text, std::string& wire);
// Appends the array of bulk strings that `words` are.
void append_words(std::span<const std::string_view> words, std::string& wire);
// The same for a call of a script. Keys and arguments are ranges of text.
template <class Keys, class Arguments>
void append_call(const Script& script, const Keys& keys, const Arguments& arguments, std::string& wire) {
  append_array(3 + std::size(keys) + std::size(arguments), wire);
  append_bulk("EVALSHA", wire);
  append_bulk(script.sha1, wire);
  append_bulk(std::to_string(std::size(keys)), wire);
  for (const auto& key : keys) append_bulk(key, wire);
  for (const auto& argument : arguments) append_bulk(argument, wire);
}
// Of a key, by what stands between its first braces, if anything does.
[[nodiscard]] std::uint16_t slot_of(std::string_view key) noexcept;

// The name of a cell: a readable prefix, and the hash in base64 as that which decides the slot.
[[nodiscard]] std::string cell_key(std::string_view prefix, const base::Hash128& cell);

// A reply as it lies in the reader's memory: valid while the callback runs that it was given to.
class Reply {
 public:
  explicit Reply(const redisReply* reply) noexcept : reply_(reply) {}
  [[nodiscard]] bool is_nil() const noexcept;
  [[nodiscard]] bool is_integer() const noexcept;
  [[nodiscard]] bool is_text() const noexcept;  // bulk or simple string
  [[nodiscard]] bool is_array() const noexcept;
  // REQUIRES: it is one; of [], that `i` is below its size.
  [[nodiscard]] std::int64_t integer() const noexcept;
  [[nodiscard]] std::string_view text() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;  // of an array; 0 of anything else
  [[nodiscard]] Reply operator[](std::size_t i) const noexcept;

 private:
  const redisReply* reply_;
};

// Carries commands to Redis and answers back.
class Caller {
 public:
  // Called exactly once (but see Command::hear_late), from the carrier's thread, or before call() returns where nothing
  // can be sent. An error reply
  // of the server is an Error whose message begins with the server's own word ("WRONGTYPE ..."); Error::transient says
  // whether asking again later may help.
  using Done = std::function<void(const Result<Reply>&)>;

  virtual ~Caller() = default;
  virtual void call(Command command, Done done) = 0;
  // How long after it was asked a command is answered at the latest.
  [[nodiscard]] virtual Nanos deadline() const noexcept { return Nanos::max(); }
};

// Says it and waits, for no longer than the caller's deadline. `read` sees the answer while it lasts.
void ask_and_wait(Caller& caller, Command command, const std::function<void(const Result<Reply>&)>& read);

}  // namespace headgate::store::redis
