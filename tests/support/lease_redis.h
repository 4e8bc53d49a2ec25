// A fake Redis made of a memory store and a few records, with the commands of a real one.
#pragma once

#include <hiredis/hiredis.h>

#include <array>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "store/memory/memory_store.h"
#include "support/lease_records.h"

namespace headgate::test {

// The words of a command.
inline std::vector<std::string> words_of_wire(std::string_view wire) {
  std::vector<std::string> words;
  const auto count_after = [&wire](char mark) {
    std::size_t count = 0;
    if (wire.empty() || wire.front() != mark) return count;
    const char* end = std::from_chars(wire.data() + 1, wire.data() + wire.size(), count).ptr;
    wire.remove_prefix(static_cast<std::size_t>(end - wire.data()) + 2);
    return count;
  };
  const std::size_t count = count_after('*');
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = count_after('$');
    words.emplace_back(wire.substr(0, size));
    wire.remove_prefix(size + 2);
  }
  return words;
}

class LeaseRedis {
 public:
  LeaseRedis() : store_({.max_cells = 4096, .seed = 1}) {}

  store::Applied apply(std::span<const store::Charge> charges, store::Ask ask, std::span<core::Outcome> outcomes,
                       Nanos now) {
    ++commands_;
    ask.now = ask.wall = now;
    return store_.apply(charges, ask, outcomes);
  }
  void refund(const store::Charge& charge, Nanos charged_at, Nanos now) {
    ++commands_;
    store_.refund(charge, charged_at, now);
  }
  // What the lease script answers to this command.
  std::array<std::int64_t, 2> hold(const store::redis::Command& command, Nanos now) {
    ++commands_;
    const std::vector<std::string> words = words_of_wire(command.wire);
    const auto number = [&words](std::size_t i) { return std::stoll(words.at(i)); };
    store::redis::Hold hold;
    hold.number = static_cast<std::uint64_t>(number(5));
    hold.left = number(6);
    hold.want = number(7);
    hold.least = number(8);
    hold.cap = number(9);
    hold.ttl = std::chrono::microseconds{number(10)};
    LeaseRecord& record = records_[words.at(3)];
    const auto held = record.hold(words.at(4), hold, now.count() / 1000);
    return held.has_value() ? std::array{held->units, held->out} : std::array{Units{-1}, record.out()};
  }

  [[nodiscard]] std::uint64_t commands() const noexcept { return commands_; }
  [[nodiscard]] Units out() const noexcept {
    Units out = 0;
    for (const auto& [key, record] : records_) out = std::max(out, record.out());
    return out;
  }

 private:
  store::MemoryStore store_;
  std::map<std::string, LeaseRecord> records_;
  std::uint64_t commands_ = 0;
};

// Gives two integers as hiredis would.
template <class Done>
void answer_with(std::array<std::int64_t, 2> numbers, const Done& done) {
  std::array<redisReply, 2> parts{};
  std::array<redisReply*, 2> elements{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].type = REDIS_REPLY_INTEGER;
    parts[i].integer = numbers[i];
    elements[i] = &parts[i];
  }
  redisReply reply{};
  reply.type = REDIS_REPLY_ARRAY;
  reply.elements = elements.size();
  reply.element = elements.data();
  done(Result<store::redis::Reply>(store::redis::Reply(&reply)));
}

}  // namespace headgate::test
