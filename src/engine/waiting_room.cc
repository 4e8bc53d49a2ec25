#include "engine/waiting_room.h"

#include <algorithm>
#include <cassert>

namespace headgate::engine {

bool WaitingRoom::has_line(const base::Hash128& key, int priority) const {
  const std::lock_guard guard(mutex_);
  const auto line = lines_.find(key);
  return line != lines_.end() && line->second.first().priority >= priority;
}

WaitingRoom::Place WaitingRoom::take_place(std::size_t most, std::string_view owner) {
  const std::lock_guard guard(mutex_);
  if (size_.load() >= most || shares_.of(owner) >= base::Shares::share_of(most, kLeastShare)) return {};
  Place place(*this, owner);
  shares_.take(owner);
  ++size_;
  return place;
}

void WaitingRoom::give_back(std::string_view owner) {
  const std::lock_guard guard(mutex_);
  shares_.give_back(owner);
  --size_;
}

void WaitingRoom::add(Place place, std::shared_ptr<Waiting> waiting, std::uint64_t kicks) {
  const std::lock_guard guard(mutex_);
  assert(place.room_ == this);
  assert(!by_id_.contains(waiting->id));
  if (kicked_since(waiting->line, kicks)) waiting->retry_at = Nanos{0};
  waiting->owner = std::move(place.owner_);
  insert(std::move(waiting));
  place.room_ = nullptr;  // it is in use
}

bool WaitingRoom::put_back(std::shared_ptr<Waiting> waiting, std::uint64_t kicks) {
  const std::lock_guard guard(mutex_);
  const auto tried = trying_.extract(waiting->id);
  if (tried && tried.mapped()) return false;
  if (kicked_since(waiting->line, kicks)) waiting->retry_at = Nanos{0};
  shares_.take(waiting->owner);
  insert(std::move(waiting));
  ++size_;
  return true;
}

void WaitingRoom::answered(const Waiting& tried) {
  const std::lock_guard guard(mutex_);
  trying_.erase(tried.id);
}

bool WaitingRoom::kicked_since(const base::Hash128& cell, std::uint64_t kicks) const noexcept {
  return std::max(kicked_all_, kicked_[cell.low % kicked_.size()]) > kicks;
}

std::uint64_t WaitingRoom::Line::next_round(const std::string& owner) {
  // An owner whose turns are over has the next one, whether it is remembered or not.
  if (rounds.size() > 2 * waiting.size() + 16) {
    std::erase_if(rounds, [this](const auto& each) { return each.second <= round; });
  }
  std::uint64_t& last = rounds.try_emplace(owner, round).first->second;
  last = std::max(last, round) + 1;
  return last;
}

void WaitingRoom::list_first(const Line& line) {
  if (line.empty()) return;
  Waiting& first = line.first();
  if (first.retry_at == Nanos{0}) {
    set_ready(first);
  } else {
    later_.emplace(first.retry_at, first.id);
  }
}

void WaitingRoom::unlist_first(const Line& line) {
  if (line.empty()) return;
  const Waiting& first = line.first();
  ready_.erase({first.ready_as, first.id});
  later_.erase({first.retry_at, first.id});
}

void WaitingRoom::set_ready(Waiting& first) {
  later_.erase({first.retry_at, first.id});
  first.retry_at = Nanos{0};
  if (first.ready_as == 0) first.ready_as = ++last_ready_;
  ready_.emplace(first.ready_as, first.id);
}

void WaitingRoom::insert(std::shared_ptr<Waiting> waiting) {
  Line& line = lines_[waiting->line];
  unlist_first(line);
  if (waiting->round == 0) {
    waiting->round = line.next_round(waiting->owner);
  } else {
    line.round = std::max(line.round, waiting->round - 1);  // the line may be a new one
  }
  waiting->ready_as = 0;
  by_id_.emplace(waiting->id, waiting.get());
  deadlines_.emplace(waiting->deadline, waiting->id);
  const Rank rank = rank_of(*waiting);
  line.waiting.emplace(rank, std::move(waiting));
  list_first(line);
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::remove(std::uint64_t id) {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return nullptr;
  const Waiting& leaving = *known->second;
  const auto line = lines_.find(leaving.line);
  const auto at = line->second.waiting.find(rank_of(leaving));
  unlist_first(line->second);
  std::shared_ptr<Waiting> waiting = std::move(at->second);
  by_id_.erase(known);
  deadlines_.erase({waiting->deadline, id});
  line->second.waiting.erase(at);
  if (line->second.empty()) {
    lines_.erase(line);
  } else {
    line->second.first().retry_at = Nanos{0};
    list_first(line->second);
  }
  shares_.give_back(waiting->owner);
  --size_;
  return waiting;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take(std::uint64_t id) {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Waiting> waiting = remove(id);
  if (const auto tried = trying_.find(id); tried != trying_.end()) tried->second = true;
  return waiting;
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_overdue(Nanos now) {
  const std::lock_guard guard(mutex_);
  if (deadlines_.empty() || deadlines_.begin()->first > now) return nullptr;
  return remove(deadlines_.begin()->second);
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_first_due(Nanos now) {
  const std::lock_guard guard(mutex_);
  while (!later_.empty() && later_.begin()->first <= now) {
    set_ready(*by_id_.at(later_.begin()->second));
  }
  // Of several lines the one that has been ready longest.
  if (ready_.empty()) return nullptr;
  const std::uint64_t id = ready_.begin()->second;
  trying_.emplace(id, false);
  const Waiting& first = *by_id_.at(id);
  Line& line = lines_.at(first.line);
  line.round = std::max(line.round, first.round);
  // The next one in line is tried after it, in case there was room for more than one; or stays behind it, if it is put
  // back.
  return remove(id);
}

std::shared_ptr<WaitingRoom::Waiting> WaitingRoom::take_any() {
  const std::lock_guard guard(mutex_);
  return by_id_.empty() ? nullptr : remove(by_id_.begin()->first);
}

std::vector<std::shared_ptr<const WaitingRoom::Waiting>> WaitingRoom::revocable() const {
  std::vector<std::shared_ptr<const Waiting>> found;
  const std::lock_guard guard(mutex_);
  for (const auto& [key, line] : lines_) {
    for (const auto& [rank, waiting] : line.waiting) {
      if (waiting->done.valid()) found.push_back(waiting);
    }
  }
  return found;
}

void WaitingRoom::kick() {
  const std::lock_guard guard(mutex_);
  kicked_all_ = ++kicks_;
  while (!later_.empty()) set_ready(*by_id_.at(later_.begin()->second));
}

void WaitingRoom::kick(const base::Hash128& cell) {
  const std::lock_guard guard(mutex_);
  kicked_[cell.low % kicked_.size()] = ++kicks_;
  if (const auto line = lines_.find(cell); line != lines_.end()) set_ready(line->second.first());
}

Nanos WaitingRoom::next_due() const {
  const std::lock_guard guard(mutex_);
  if (!ready_.empty()) return Nanos{0};
  Nanos next = later_.empty() ? kMaxTime : later_.begin()->first;
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  return next;
}

}  // namespace headgate::engine
