#include "engine/waiting_room.h"

#include <algorithm>

namespace headgate::engine {

bool WaitingRoom::has_line(const base::Hash128& key, int priority) const {
  const std::lock_guard guard(mutex_);
  const auto line = lines_.find(key);
  return line != lines_.end() && line->second.begin()->first.priority >= priority;
}

bool WaitingRoom::add(std::shared_ptr<Waiting> waiting, std::size_t most, std::uint64_t kicks) {
  const std::lock_guard guard(mutex_);
  if (size_.load() >= most) return false;
  if (kicks_.load() != kicks) waiting->retry_at = Nanos{0};
  lines_[waiting->line].emplace(Rank{waiting->priority, waiting->id}, std::move(waiting));
  ++size_;
  return true;
}

bool WaitingRoom::put_back(std::shared_ptr<Waiting> waiting, std::uint64_t kicks) {
  const std::lock_guard guard(mutex_);
  trying_ = 0;
  if (unwanted_) return false;
  if (kicks_.load() != kicks) waiting->retry_at = Nanos{0};
  Line& line = lines_[waiting->line];
  line.emplace(Rank{waiting->priority, waiting->id}, std::move(waiting));
  ++size_;
  return true;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::remove(
    std::unordered_map<base::Hash128, Line, HashOfHash>::iterator line, Line::iterator at) {
  std::shared_ptr<Waiting> waiting = std::move(at->second);
  line->second.erase(at);
  if (line->second.empty()) {
    lines_.erase(line);
  } else {
    line->second.begin()->second->retry_at = Nanos{0};  // whoever is first now has not been tried yet
  }
  --size_;
  return waiting;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take(std::uint64_t id) {
  const std::lock_guard guard(mutex_);
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    for (auto at = line->second.begin(); at != line->second.end(); ++at) {
      if (at->second->id == id) return remove(line, at);
    }
  }
  if (trying_ == id) unwanted_ = true;
  return nullptr;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_overdue(Nanos now) {
  const std::lock_guard guard(mutex_);
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    for (auto at = line->second.begin(); at != line->second.end(); ++at) {
      if (at->second->deadline <= now) return remove(line, at);
    }
  }
  return nullptr;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_first_due(Nanos now) {
  const std::lock_guard guard(mutex_);
  // Of several lines the one that has waited longest.
  auto best = lines_.end();
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    const Waiting& first = *line->second.begin()->second;
    if (first.retry_at > now) continue;
    if (best == lines_.end() || first.id < best->second.begin()->second->id) best = line;
  }
  if (best == lines_.end()) return nullptr;
  trying_ = best->second.begin()->second->id;
  unwanted_ = false;
  // Not remove(): whoever is behind is tried only when this one has been.
  const auto at = best->second.begin();
  std::shared_ptr<Waiting> waiting = std::move(at->second);
  best->second.erase(at);
  if (best->second.empty()) lines_.erase(best);
  --size_;
  return waiting;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_any() {
  const std::lock_guard guard(mutex_);
  if (lines_.empty()) return nullptr;
  return remove(lines_.begin(), lines_.begin()->second.begin());
}

void WaitingRoom::kick() {
  const std::lock_guard guard(mutex_);
  ++kicks_;
  for (auto& [key, line] : lines_) line.begin()->second->retry_at = Nanos{0};
}

Nanos WaitingRoom::next_due() const {
  const std::lock_guard guard(mutex_);
  Nanos next = kMaxTime;
  for (const auto& [key, line] : lines_) {
    next = std::min(next, line.begin()->second->retry_at);
    for (const auto& [rank, waiting] : line) next = std::min(next, waiting->deadline);
  }
  return next;
}

}  // namespace headgate::engine
