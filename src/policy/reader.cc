#include "policy/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <unordered_map>

#include "policy/fields.h"
#include "policy/settings.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

// Bytes of all patterns of a document that begin with a wildcard, each counted as at least kLeastUnanchored. No index
// finds them, so each is tried on every check: at most 4,096 of them, and 17 million steps with names of 256 bytes.
constexpr std::size_t kMaxUnanchored = 64 << 10;
constexpr std::size_t kLeastUnanchored = 16;

// How much of that a pattern takes: "*-export" its length, "export-*" nothing, since an index finds it.
std::size_t unanchored_length(std::string_view pattern) noexcept {
  if (pattern.starts_with('!')) pattern.remove_prefix(1);
  if (pattern.empty() || pattern == "*" || (pattern.front() != '*' && pattern.front() != '?')) return 0;
  return std::max(pattern.size(), kLeastUnanchored);
}

namespace fs = std::filesystem;

std::string mebibytes(std::uintmax_t bytes) {
  constexpr std::uintmax_t kMebibyte = 1 << 20;
  const std::uintmax_t tenths = (bytes * 10 + kMebibyte - 1) / kMebibyte;
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
  return text + " MiB";
}

// Puts one document together out of all the texts it is given.
class Assembler {
 public:
  void problem(const std::string& file, std::string message) { report_.problem({file, 0, 0}, std::move(message)); }

  void add(const Text& document) {
    const std::string& text = document.text;
    Source& source = sources_.emplace_back();
    source.file = document.file;
    source.replaces = document.replaces;
    if (text.size() > kMaxDocumentBytes - bytes_) {
      const bool alone = bytes_ == 0;
      problem(source.file, (alone ? "must be at most " : "must be, with the files before it, at most ") +
                               mebibytes(kMaxDocumentBytes) + ", is " + mebibytes(bytes_ + text.size()));
      source.refused = true;
      return;
    }
    bytes_ += text.size();
    source.tree = parse(text, document.variables ? Expand::kEnvironment : Expand::kRefuse);
    for (Flaw& flaw : source.tree.flaws) {
      report_.problem({source.file, flaw.line, flaw.column}, std::move(flaw.message));
    }
  }

  ReadResult finish(const std::set<std::string>& without = {}) && {
    // Settings come first, since policies need the levels of every file.
    for_each_document([this](const Scope& scope, const Node& root) { read_settings(scope, root); });
    for (const Source& source : sources_) {
      const std::size_t before = document_.policies.size();
      for_each_document_of(source, [this](const Scope& scope, const Node& root) { read_policies(scope, root); });
      if (source.replaces) replace_from(before);
    }
    std::erase_if(document_.policies, [&](const Policy& policy) { return without.contains(policy.id); });
    refuse_duplicates();
    ReadResult result;
    result.document = std::move(document_);
    result.problems = report_.take_problems();
    result.notes = report_.take_notes();
    return result;
  }

 private:
  struct Source {
    std::string file;
    Tree tree;
    bool replaces = false;
    bool refused = false;  // unread, for its size
  };
  struct Given {
    Place place;
    const Node* node = nullptr;
  };

  template <class Function>
  void for_each_document(const Function& function) {
    for (const Source& source : sources_) for_each_document_of(source, function);
  }
  template <class Function>
  void for_each_document_of(const Source& source, const Function& function) {
    const Scope scope(report_, source.file);
    for (const Node* root : source.tree.roots) {
      if (root->is_mapping()) function(scope, *root);
    }
  }

  // Policies from `first` on stand in for earlier ones of the same id, at their place.
  void replace_from(std::size_t first) {
    std::vector<Policy>& policies = document_.policies;
    for (std::size_t i = first; i < policies.size();) {
      const auto old = std::find_if(policies.begin(), policies.begin() + static_cast<std::ptrdiff_t>(first),
                                    [&](const Policy& policy) { return policy.id == policies[i].id; });
      if (old == policies.begin() + static_cast<std::ptrdiff_t>(first)) {
        ++i;
        continue;
      }
      *old = std::move(policies[i]);
      policies.erase(policies.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  static bool is_envoy(const Node& root) {
    return root.find("descriptors") != nullptr || root.find("domain") != nullptr;
  }

  void read_settings(const Scope& scope, const Node& root) {
    if (is_envoy(root)) return;
    const auto names = setting_names();
    for (const Entry& entry : root.entries) {
      if (std::find(names.begin(), names.end(), entry.key) == names.end()) continue;
      const Place place = scope.place(entry);
      const auto [first, fresh] = given_.emplace(entry.key, Given{place, entry.value});
      if (!fresh) {
        if (same(*first->second.node, *entry.value)) continue;
        scope.problem(entry, entry.key + " must be given once, is also given at " + text(first->second.place));
        continue;
      }
      if (entry.key == "levels") {
        read_scales(scope, *entry.value, s1_.scales);
      } else if (entry.key == "defaultStrategy") {
        read_s1_strategy(scope, *entry.value, s1_.strategy);
      } else {
        read_setting(scope, entry, document_);
      }
    }
  }

  void read_policies(const Scope& scope, const Node& root) {
    std::vector<Policy>& policies = document_.policies;
    if (is_envoy(root)) {
      document_.has_policies = true;
      read_envoy(scope, root, policies);
      return;
    }
    const auto names = setting_names();
    for (const Entry& entry : root.entries) {
      const bool setting = std::find(names.begin(), names.end(), entry.key) != names.end();
      if (setting) continue;
      if (entry.key == "policies") {
        read_native(scope, *entry.value, s1_.scales, policies);
      } else if (entry.key == "rateLimitPolicies") {
        read_s1_agents(scope, *entry.value, s1_, policies);
      } else if (entry.key == "globalPolicies") {
        read_s1_globals(scope, *entry.value, s1_, policies);
      } else if (entry.key == "rate_limiting") {
        read_s3(scope, *entry.value, document_);
      } else {
        std::vector<std::string> allowed(names.begin(), names.end());
        allowed.insert(allowed.end(),
                       {"policies", "rateLimitPolicies", "globalPolicies", "rate_limiting", "domain", "descriptors"});
        unknown_key(scope, entry, "the document", allowed);
        continue;
      }
      document_.has_policies = true;
    }
  }

  // A file without any key is one that was cut off or emptied by mistake: taken for a document, it would put every
  // policy out of force.
  void check_roots(const Source& source) {
    const Scope scope(report_, source.file);
    bool keys = false;
    bool others = !source.tree.flaws.empty() || source.refused;
    for (const Node* root : source.tree.roots) {
      keys = keys || (root->is_mapping() && !root->entries.empty());
      if (root->is_mapping() || root->is_null()) continue;
      others = true;
      scope.problem(*root, "the document must be a mapping, got " + shown(*root));
    }
    if (keys || others) return;
    report_.problem({source.file, 1, 1},
                    "the document has no keys; write policies: [] if there are to be no policies of its own");
  }

  void refuse_duplicates() {
    for (const Source& source : sources_) check_roots(source);
    if (document_.policies.size() > kMaxPolicies) {
      report_.problem({}, "policies must be at most " + std::to_string(kMaxPolicies) + " in all, got " +
                              std::to_string(document_.policies.size()));
    }
    refuse_too_many_globs();
    std::unordered_map<std::string_view, const Policy*> ids;
    for (const Policy& policy : document_.policies) {
      if (policy.id.empty()) continue;
      const auto [first, fresh] = ids.emplace(policy.id, &policy);
      if (fresh) continue;
      report_.problem(policy.place, "policy \"" + policy.id + "\": id must be unique, is also given at " +
                                        text(first->second->place));
    }
  }

  void refuse_too_many_globs() {
    std::size_t total = 0;
    const auto add = [&](const Patterns& patterns) {
      for (const std::string& pattern : patterns) total += unanchored_length(pattern);
    };
    for (const Policy& policy : document_.policies) {
      const Match& match = policy.match;
      for (const Patterns* patterns :
           {&match.agents, &match.operations, &match.contexts, &match.users, &match.tenants, &match.plans,
            &match.channels, &match.tiers, &match.resources, &match.sessions, &match.ips}) {
        add(*patterns);
      }
      for (const AttributeRule& rule : match.attributes) add(rule.patterns);
      if (total <= kMaxUnanchored) continue;
      report_.problem(policy.place, "patterns that begin with a wildcard must come to at most " +
                                        std::to_string(kMaxUnanchored) + " bytes in all, each counted as at least " +
                                        std::to_string(kLeastUnanchored) +
                                        ", since each is tried on every check; policy \"" + policy.id +
                                        "\" exceeds that: let patterns begin with a literal");
      return;
    }
    for (const Patterns& patterns : document_.tiers.operations) add(patterns);
    if (total > kMaxUnanchored) {
      report_.problem({}, "tiers: patterns that begin with a wildcard must come to at most " +
                              std::to_string(kMaxUnanchored) + " bytes in all");
    }
  }

  Report report_;
  std::deque<Source> sources_;
  std::size_t bytes_ = 0;
  std::map<std::string, Given> given_;
  S1Defaults s1_{.scales = default_scales()};
  Document document_;
};

void problem(Gathered& gathered, const std::string& file, std::string message) {
  gathered.problems.push_back({{file, 0, 0}, std::move(message)});
}

void add_file(Gathered& gathered, const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (!error && size > kMaxDocumentBytes) {
    problem(gathered, path, "must be at most " + mebibytes(kMaxDocumentBytes) + ", is " + mebibytes(size));
    return;
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes;
  if (in) {
    // One byte more than may be, so that a file that grows is still found too large.
    bytes.resize(std::min<std::uintmax_t>(error ? kMaxDocumentBytes : size, kMaxDocumentBytes) + 1);
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad() || (!in && !in.eof())) {
    problem(gathered, path, std::string("cannot be read: ") + std::strerror(errno));
    return;
  }
  const bool variables = has_variables(bytes);
  gathered.texts.push_back({.file = path, .text = std::move(bytes), .variables = variables});
}

void add_directory(Gathered& gathered, const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  fs::directory_iterator entries(path, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    // Hidden files are an editor's: .#a.yaml is its lock, .a.yaml.swp its copy.
    if (entries->path().filename().string().starts_with('.')) continue;
    const std::string extension = entries->path().extension().string();
    if (extension == ".yaml" || extension == ".yml" || extension == ".json") files.push_back(entries->path().string());
  }
  if (error) {
    problem(gathered, path, "cannot be read: " + error.message());
    return;
  }
  std::sort(files.begin(), files.end());
  std::erase_if(files, [](const std::string& file) {
    std::error_code ignored;
    return fs::is_directory(file, ignored);
  });
  if (files.empty()) problem(gathered, path, "must have at least one *.yaml, *.yml or *.json file, has none");
  for (const std::string& file : files) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) {
      add_file(gathered, file);
    } else {
      problem(gathered, file, "must be a regular file");
    }
  }
}

}  // namespace

ReadResult read_text(std::string_view text, std::string_view file) {
  Assembler assembler;
  assembler.add({.file = std::string(file), .text = std::string(text)});
  return std::move(assembler).finish();
}

ReadResult read_texts(std::span<const Text> texts, const std::set<std::string>& without) {
  Assembler assembler;
  for (const Text& text : texts) assembler.add(text);
  return std::move(assembler).finish(without);
}

Gathered gather(const std::vector<std::string>& paths) {
  Gathered gathered;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      problem(gathered, path, "must be a file or a directory, is not there");
    } else if (error) {
      problem(gathered, path, "cannot be read: " + error.message());
    } else if (fs::is_directory(status)) {
      add_directory(gathered, path);
    } else if (fs::is_regular_file(status)) {
      add_file(gathered, path);
    } else {
      problem(gathered, path, "must be a file or a directory");
    }
  }
  return gathered;
}

ReadResult read_paths(const std::vector<std::string>& paths) {
  const Gathered gathered = gather(paths);
  Assembler assembler;
  for (const Problem& problem : gathered.problems) assembler.problem(problem.place.file, problem.message);
  for (const Text& text : gathered.texts) assembler.add(text);
  return std::move(assembler).finish();
}

}  // namespace headgate::policy
