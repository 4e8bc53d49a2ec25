#include "api/http/event_feed.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace headgate::api {

// Sends what it is given, and takes nothing in. It joins the feed once it has a link.
class EventFeed::Listener final : public net::Session {
 public:
  Listener(std::shared_ptr<EventFeed> feed, std::uint64_t id, std::uint64_t last, StillGood still_good)
      : feed_(std::move(feed)), id_(id), last_(last), still_good_(std::move(still_good)) {}
  ~Listener() override { feed_->leave(id_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void receive(std::string_view /*bytes*/, Nanos now) override { tick(now); }
  void drain() override { close = true; }
  [[nodiscard]] bool midway() const noexcept override { return false; }
  void tick(Nanos now) override {
    constexpr Nanos kKeepAlive = std::chrono::seconds{15};
    now_ = now;
    if (!still_good_(now)) {
      close = true;
      return;
    }
    if (!joined_ && link != nullptr) {
      joined_ = true;
      spoke_ = now;
      feed_->join(id_, link, last_, out);
    }
    if (now - spoke_ < kKeepAlive) return;
    spoke_ = now;
    push(": still here\n\n");
  }
  void push(std::string_view text) {
    if (close) return;
    if (!still_good_(now_)) {
      close = true;
      return;
    }
    if (out.size() + text.size() > kMostBacklog) {
      close = true;  // it may come back, and ask for what it has missed
      return;
    }
    out += text;
  }

 private:
  std::shared_ptr<EventFeed> feed_;
  std::uint64_t id_;
  std::uint64_t last_;
  StillGood still_good_;
  bool joined_ = false;
  Nanos spoke_{0};
  Nanos now_{0};  // of the last tick
};

void EventFeed::on_notice(const observe::Notice& notice) {
  const auto text = std::make_shared<const std::string>(
      fmt::format("id: {}\nevent: {}\ndata: {}\n\n", notice.id, notice.kind, to_json(notice)));
  std::vector<std::shared_ptr<net::Link>> links;
  {
    const std::lock_guard guard(mutex_);
    newest_ = notice.id;
    kept_.push_back({notice.id, *text});
    if (kept_.size() > kMostKept) kept_.pop_front();
    for (const auto& [id, weak] : links_) {
      if (std::shared_ptr<net::Link> link = weak.lock()) links.push_back(std::move(link));
    }
  }
  for (const std::shared_ptr<net::Link>& link : links) {
    link->post([text](net::Session& session) {
      if (auto* listener = dynamic_cast<Listener*>(&session)) listener->push(*text);
    });
  }
}

std::unique_ptr<net::Session> EventFeed::listen(std::uint64_t last, StillGood still_good) {
  std::uint64_t id = 0;
  {
    const std::lock_guard guard(mutex_);
    if (listeners_ >= kMostListeners) return nullptr;
    ++listeners_;
    id = ++next_listener_;
  }
  return std::make_unique<Listener>(shared_from_this(), id, last, std::move(still_good));
}

std::uint64_t EventFeed::newest() const {
  const std::lock_guard guard(mutex_);
  return newest_;
}

void EventFeed::join(std::uint64_t listener, const std::shared_ptr<net::Link>& link, std::uint64_t last,
                     std::string& out) {
  const std::lock_guard guard(mutex_);
  links_[listener] = link;
  for (const Event& event : kept_) {
    if (event.id > last) out += event.text;
  }
}

void EventFeed::leave(std::uint64_t listener) {
  const std::lock_guard guard(mutex_);
  links_.erase(listener);
  --listeners_;
}

}  // namespace headgate::api
