// Which policies are in force, where they came from, and every version there has been.
//
// Three layers make the document: the files of the configuration, or a document that was put by API in their place;
// over it single policies that were put or deleted by API; over these the tiers' numbers that were set by API. The last
// two survive a restart and a reload of the files. Each change is read whole before anything happens: what is wrong
// with it is told, and the old document goes on serving. What is good is in force at once and goes to disk after that.
//
// A version keeps the layers, not their sum, as one JSON object, so that going back restores exactly what was:
//   {"from": "files"|"api", "texts": [{"file", "text"}], "policies": {id: text}, "deleted": [id], "tiers": {...}|null}
//
// Safe for concurrent use; changes take turns, and those who look do not wait for them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/reader.h"
#include "service/service.h"

namespace headgate::service {

using TierLimits = std::array<policy::TierLimit, policy::kTierCount>;

class Policies {
 public:
  // `paths` are the configuration's; none: the built-in tier limits.
  Policies(Service& service, std::vector<std::string> paths);

  // What came of a change.
  struct Changed {
    std::vector<policy::Problem> problems;  // of the document: it is not in force
    std::optional<Error> error;             // of anything else
    std::int64_t version = 0;
    [[nodiscard]] bool ok() const noexcept { return problems.empty() && !error; }
    // All of it in one text, a line each.
    [[nodiscard]] std::string text() const;
  };

  // Puts in force what the files and earlier changes say. Once, before anything else.
  [[nodiscard]] Changed start();
  // `kept` hears whether a change that is in force is on disk; it is not told of one that was refused.
  using Kept = state::Database::Kept;
  // Reads the files again. `who` for the audit log: "signal", "files".
  [[nodiscard]] Changed reload(const std::string& who);

  // `who` did it. The document takes the place of the files and of all single policies.
  [[nodiscard]] Changed replace(const std::string& text, const std::string& who, const Kept& kept = {});
  // One policy, as JSON or YAML. Its id is `id`: it need not say so, but must not say otherwise.
  [[nodiscard]] Changed put(const std::string& id, const std::string& text, const std::string& who,
                            const Kept& kept = {});
  // Error kNotFound: there is none of that id.
  [[nodiscard]] Changed remove(const std::string& id, const std::string& who, const Kept& kept = {});
  // Back to the files, without anything the API has put or deleted.
  [[nodiscard]] Changed revert(const std::string& who, const Kept& kept = {});
  // nullopt: back to what the document says.
  [[nodiscard]] Changed set_tiers(const std::optional<TierLimits>& limits, const std::string& who,
                                  const Kept& kept = {});
  // What another node has put: the value of the setting that keeps it, without the files. nullopt: nothing.
  [[nodiscard]] Changed adopt(const std::optional<std::string>& layers, const std::string& who);
  static constexpr std::string_view kSection = "policy";  // of that setting
  [[nodiscard]] Changed rollback(std::int64_t version, const std::string& who, const Kept& kept = {});

  // Reads a document as replace() would, and changes nothing.
  [[nodiscard]] static policy::ReadResult validate(const std::string& text);

  // As it is now.
  struct Layers {
    bool from_files = true;                       // or put by API
    std::vector<policy::Text> texts;              // the document's; none: the built-in tier limits
    std::map<std::string, std::string> policies;  // put by API, by id, as they were put
    std::set<std::string> deleted;                // by API
    std::optional<TierLimits> tiers;              // by API
  };
  struct View {
    Layers layers;
    std::int64_t version = 0;
    policy::Document document;  // in force
  };
  [[nodiscard]] View view() const;
  [[nodiscard]] std::int64_t version() const;
  // The document in force, as one stream that read_text() takes, but for what has been put or deleted singly.
  [[nodiscard]] static std::string stream(const Layers& layers);

  struct Reloads {
    std::uint64_t done = 0;
    std::uint64_t refused = 0;
  };
  [[nodiscard]] Reloads reloads() const;

 private:
  struct Change {
    std::string who;
    std::string action;  // "policies.replace"
    std::string target;
    std::string before;  // a JSON object for the audit log, besides what every change says there; empty: no more
    std::string after;
    std::string source;  // "files", "api", "rollback"
    std::string note;
  };

  // All under changing_.
  [[nodiscard]] Changed apply_locked(Layers next, const Change& change, const Kept& kept = {});
  // What a setting kept, over the files as they are now.
  [[nodiscard]] Changed with_files_locked(const std::optional<std::string>& kept, const Change& change);
  [[nodiscard]] static std::vector<state::Setting> settings_of(const Layers& layers);
  [[nodiscard]] Changed refused(Changed changed);

  Service& service_;
  const std::vector<std::string> paths_;
  std::mutex changing_;       // held by a change from reading it to putting it in force; the first of the two
  mutable std::mutex mutex_;  // guards all below, which only a change writes: held for that moment
  Layers layers_;
  policy::Document document_;
  std::int64_t version_ = 0;
  std::string text_;  // of that version, as it is kept
  Reloads reloads_;
};

}  // namespace headgate::service
