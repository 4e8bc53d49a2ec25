// Notices as server-sent events, to everyone who listens at GET /api/events.
//
// Safe for concurrent use. At most kMostListeners; the newest kMostKept events are kept, so that one who comes back
// with Last-Event-ID misses none of them. A listener that leaves more than kMostBacklog unread is closed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/session.h"
#include "observe/notices.h"

namespace headgate::api {

class EventFeed final : public observe::NoticeSink, public std::enable_shared_from_this<EventFeed> {
 public:
  static constexpr std::size_t kMostListeners = 256;
  static constexpr std::size_t kMostKept = 1'000;
  static constexpr std::size_t kMostBacklog = 1 << 20;

  void on_notice(const observe::Notice& notice) override;

  // Whether the listener may still listen, now (steady).
  using StillGood = std::function<bool(Nanos now)>;
  // The connection of one listener, from the event after `last` on. It is closed once `still_good` says no, which is
  // asked before each event and about once a second. nullptr: as many listen as may.
  [[nodiscard]] std::unique_ptr<net::Session> listen(std::uint64_t last, StillGood still_good);
  [[nodiscard]] std::uint64_t newest() const;

 private:
  class Listener;
  struct Event {
    std::uint64_t id = 0;
    std::string text;  // as it is sent
  };

  // Registers the listener's link, and gives it what it has missed.
  void join(std::uint64_t listener, const std::shared_ptr<net::Link>& link, std::uint64_t last, std::string& out);
  void leave(std::uint64_t listener);

  mutable std::mutex mutex_;
  std::deque<Event> kept_;
  std::uint64_t newest_ = 0;
  std::uint64_t next_listener_ = 0;
  std::size_t listeners_ = 0;  // joined or not yet
  std::unordered_map<std::uint64_t, std::weak_ptr<net::Link>> links_;
};

}  // namespace headgate::api
