// Changes that are in force but not on disk yet.
//
// Not safe for concurrent use: its owner has a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "state/database.h"

namespace headgate::state {

struct Pending {
  std::map<std::pair<std::string, std::string>, std::optional<std::string>> settings;  // by section and key
  std::set<std::string> revoked;                                                       // ids of tokens
  std::deque<AuditEntry> entries;                                                      // oldest first
  std::deque<PolicyVersion> versions;                                                  // oldest first
  std::uint64_t first_entry = 0;  // the number of the first of entries, counted from the start
  std::uint64_t dropped = 0;      // entries at the bound

  [[nodiscard]] bool empty() const noexcept {
    return settings.empty() && revoked.empty() && entries.empty() && versions.empty() && dropped == 0;
  }
  // How many changes: entries stand for one each, what has none counts by itself.
  [[nodiscard]] std::size_t size() const noexcept {
    return std::max({entries.size() + static_cast<std::size_t>(dropped), settings.size(), revoked.size()});
  }

  void add(std::span<const Setting> changed) {
    for (const Setting& setting : changed) settings[{setting.section, setting.key}] = setting.value;
  }
  void add(AuditEntry entry) {
    entries.push_back(std::move(entry));
    if (entries.size() <= kMaxPendingEntries) return;
    entries.pop_front();
    ++first_entry;
    ++dropped;
  }
  void add(PolicyVersion version) {
    versions.push_back(std::move(version));
    if (versions.size() > kMaxPendingVersions) versions.pop_front();
  }

  // Takes out what has been written meanwhile as it was in `written`, an earlier copy of this.
  void remove(const Pending& written) {
    for (const auto& [key, value] : written.settings) {
      const auto mine = settings.find(key);
      if (mine != settings.end() && mine->second == value) settings.erase(mine);
    }
    for (const std::string& id : written.revoked) revoked.erase(id);
    const std::uint64_t end = written.first_entry + written.entries.size();
    while (!entries.empty() && first_entry < end) {
      entries.pop_front();
      ++first_entry;
    }
    dropped -= written.dropped;
    while (!versions.empty() && !written.versions.empty() && versions.front().id <= written.versions.back().id) {
      versions.pop_front();
    }
  }
};

}  // namespace headgate::state
