// The Redis protocol, versions 2 and 3, as command handlers see it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/pen.h"
#include "net/session.h"

namespace headgate::net {

// Writes replies in the version the connection speaks: they are in the string once the writer is gone.
class RespWriter {
 public:
  RespWriter(std::string& out, int version) noexcept : pen_(out), version_(version) {}

  void simple(std::string_view text) { line('+', text); }  // +OK
  // -ERR ...: the code is part of the text; line breaks become blanks.
  void error(std::string_view text) { line('-', text); }
  void integer(std::int64_t value) { line(':', value); }  // :1
  void bulk(std::string_view text) {                      // $2 OK
    line('$', static_cast<std::int64_t>(text.size()));
    pen_.text(text);
    pen_.put("\r\n");
  }
  void null() { version_ >= 3 ? pen_.put("_\r\n") : pen_.put("$-1\r\n"); }        // $-1, or _ in version 3
  void array(std::size_t count) { line('*', static_cast<std::int64_t>(count)); }  // *n: that many replies follow
  void map(std::size_t pairs) {                                                   // %n in version 3, else *2n
    version_ >= 3 ? line('%', static_cast<std::int64_t>(pairs)) : array(pairs * 2);
  }
  void boolean(bool value) {  // #t in version 3, else :1
    version_ >= 3 ? value ? pen_.put("#t\r\n") : pen_.put("#f\r\n") : integer(value ? 1 : 0);
  }
  [[nodiscard]] int version() const noexcept { return version_; }
  void set_version(int version) noexcept { version_ = version; }

 private:
  // A type's mark, a number and the end of the line.
  void line(char mark, std::int64_t number) {
    pen_.put(mark);
    if (number >= 0 && number < 10) {
      pen_.put(static_cast<char>('0' + number));
    } else {
      pen_.number(number);
    }
    pen_.put("\r\n");
  }
  void line(char mark, std::string_view text);

  base::Pen pen_;
  int version_;
};

// Answers one command later, from any thread, exactly once. Dropping it unanswered answers an error.
class RespLater {
 public:
  virtual ~RespLater() = default;
  virtual void send(const std::function<void(RespWriter&)>& write) = 0;  // calls it before it returns
  // Answers an error in its turn, and closes the connection after it: what was asked later is not answered.
  virtual void refuse(std::string_view error) = 0;
  [[nodiscard]] virtual bool abandoned() const noexcept = 0;
};

// What a command may do besides writing its reply.
class RespContext {
 public:
  [[nodiscard]] virtual std::shared_ptr<RespLater> later() = 0;  // then nothing is to be written now
  virtual void quit() = 0;                                       // close after the reply
  [[nodiscard]] virtual Nanos now() const noexcept = 0;          // steady, of the read that brought the command

 protected:
  ~RespContext() = default;
};

// Made for each connection, so it may keep who has signed in.
class RespCommands {
 public:
  virtual ~RespCommands() = default;
  // Writes exactly one reply (or calls later()). REQUIRES: args is not empty. Text is borrowed; bytes after
  // `args.back()` need not be readable. std::bad_alloc, and nothing else, may be thrown: the connection is closed.
  virtual void command(std::span<const std::string_view> args, RespWriter& reply, RespContext& context) = 0;
  // This one follows the command that is about to be given, if nothing comes between: what it needs may be fetched
  // meanwhile.
  virtual void soon(std::span<const std::string_view> /*args*/) noexcept {}
  // What is known of the peer by now. kUnknown: it has to sign in first.
  [[nodiscard]] virtual Standing standing() const noexcept { return Standing::kAnonymous; }
  // Called about once a second while no answer is outstanding. An error to send before the connection is closed; empty:
  // the connection stays.
  [[nodiscard]] virtual std::string_view tick(Nanos /*now*/) noexcept { return {}; }
  // The peer is gone, or will send no more: answers of later() that are still outstanding may be cancelled.
  virtual void closed() noexcept {}
};

struct RespLimits {
  std::size_t max_args = 1024;
  std::size_t max_bulk = 64 << 10;          // of one argument
  std::size_t max_command = 256 << 10;      // of all of them as sent
  std::size_t max_line = 64 << 10;          // of an inline command, or of a line that announces a length
  std::size_t max_unsigned = 16 << 10;      // as max_command, for a peer that has to sign in first
  Nanos idle{0};                            // 0: for ever
  Nanos sign_in{std::chrono::seconds{10}};  // within this time, where it has to
};

[[nodiscard]] std::unique_ptr<Session> make_resp_session(std::unique_ptr<RespCommands> commands,
                                                         const RespLimits& limits = {});

}  // namespace headgate::net
