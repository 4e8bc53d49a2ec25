// Drives sessions by hand, without sockets.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/session.h"

namespace headgate::test {

// A link whose work is run when the test says so.
class HandLink final : public net::Link {
 public:
  void post(std::function<void(net::Session&)> work) override { work_.push_back(std::move(work)); }
  void run(net::Session& session) {
    while (!work_.empty()) {
      const auto work = std::move(work_.front());
      work_.pop_front();
      work(session);
    }
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return work_.size(); }

 private:
  std::deque<std::function<void(net::Session&)>> work_;
};

// Does for a session what a connection does; everything it sends is in `sent`.
class Hand {
 public:
  explicit Hand(std::unique_ptr<net::Session> session) : session_(std::move(session)) { session_->link = link; }

  // Gives it the bytes in memory of their exact size and slack, so that a sanitizer reports reads beyond it.
  void receive(std::string_view bytes, Nanos now = Nanos{1}) {
    if (closed) return;
    const std::unique_ptr<char[]> copy(new char[bytes.size() + net::Session::kSlack]());
    bytes.copy(copy.get(), bytes.size());
    session_->receive({copy.get(), bytes.size()}, now);
    settle(now);
  }
  void receive_bytewise(std::string_view bytes) {
    for (const char byte : bytes) receive({&byte, 1});
  }
  // Runs what was posted.
  void run_posted(Nanos now = Nanos{1}) {
    if (closed) return;
    link->run(*session_);
    settle(now);
  }
  void finish() {
    if (closed) return;
    session_->finish();
    settle(Nanos{1});
  }
  [[nodiscard]] std::string take() { return std::exchange(sent, {}); }
  [[nodiscard]] net::Session& session() noexcept { return *session_; }

  std::shared_ptr<HandLink> link = std::make_shared<HandLink>();
  std::string sent;
  bool closed = false;

 private:
  void settle(Nanos now) {
    while (!closed) {
      sent += std::exchange(session_->out, {});
      if (session_->successor) {
        std::unique_ptr<net::Session> next = std::move(session_->successor);
        std::string unread = std::move(session_->unread);
        const std::size_t size = unread.size();
        unread.append(net::Session::kSlack, '\0');
        session_ = std::move(next);
        session_->link = link;
        session_->receive({unread.data(), size}, now);
        continue;
      }
      closed = session_->close;
      if (closed || !session_->paused || session_->busy()) return;
      session_->receive({}, now);
      if (session_->out.empty() && session_->paused && !session_->close) return;
    }
  }

  std::unique_ptr<net::Session> session_;
};

}  // namespace headgate::test
