#include "policy/node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>

#include "base/utf8.h"
#include "policy/json_text.h"
#include "policy/number.h"
#include "policy/reader.h"

namespace headgate::policy {
namespace {

// Thrown through the parser to stop it; never leaves this file.
struct Stop {
  Flaw flaw;
};

// Turns byte columns into character columns. Marks come nearly in order, so walking from the last one is cheap.
class Columns {
 public:
  explicit Columns(std::string_view text) : text_(text) {}
  int at(const YAML::Mark& mark) {
    const auto position = std::min(static_cast<std::size_t>(std::max(mark.pos, 0)), text_.size());
    const std::size_t start = position - std::min(position, static_cast<std::size_t>(std::max(mark.column, 0)));
    if (start != start_) {
      start_ = at_ = start;
      characters_ = 0;
    }
    for (; at_ < position; ++at_) characters_ += begins_character(at_);
    for (; at_ > position; --at_) characters_ -= begins_character(at_ - 1);
    return characters_ + 1;
  }

 private:
  [[nodiscard]] int begins_character(std::size_t i) const {
    return (static_cast<unsigned char>(text_[i]) & 0xC0) != 0x80 ? 1 : 0;
  }
  std::string_view text_;
  std::size_t start_ = 0;
  std::size_t at_ = 0;
  int characters_ = 0;
};

// Builds the tree from the parser's events.
class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, Tree& tree, Expand variables) : columns_(text), tree_(tree), variables_(variables) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    // Some stray tokens are never consumed: the parser would give empty documents without end.
    if (mark.pos == document_at_) stop(mark, "cannot be read as YAML or JSON: unexpected token");
    if (tree_.roots.size() >= kMaxDocuments) {
      stop(mark, "must be at most " + std::to_string(kMaxDocuments) + " documents");
    }
    document_at_ = mark.pos;
    anchors_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor, Node::Kind::kNull); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node& node = make(mark, anchor, Node::Kind::kScalar);
    refuse_tag(node, tag);
    node.quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    node.text = value;
    if (!awaits_key()) {
      if (auto flaw = expand(variables_, node.text)) tree_.flaws.push_back({node.line, node.column, *std::move(flaw)});
    }
    attach(node);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Node::Kind::kSequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Node::Kind::kMapping);
  }
  void OnMapEnd() override {
    refuse_duplicates(*open_.back().node);
    close();
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) stop(mark, "an alias must not stand inside what it stands for");
    if (static_cast<int>(open_.size()) + found->second->height > kMaxDepth) too_deep(mark);
    attach(*found->second);
  }

 private:
  struct Open {
    Node* node = nullptr;
    YAML::anchor_t anchor = 0;
    const Node* key = nullptr;  // of a mapping: the key whose value comes next
  };

  [[noreturn]] void stop(const YAML::Mark& mark, std::string message) {
    throw Stop{{mark.line + 1, columns_.at(mark), std::move(message)}};
  }
  [[noreturn]] void too_deep(const YAML::Mark& mark) {
    stop(mark, "must be nested at most " + std::to_string(kMaxDepth) + " deep");
  }

  Node& make(const YAML::Mark& mark, YAML::anchor_t anchor, Node::Kind kind) {
    if (tree_.nodes.size() >= kMaxNodes) too_many({mark.line + 1, columns_.at(mark), {}});
    Node& node = tree_.nodes.emplace_back();
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = columns_.at(mark);
    // Collections become known under their anchor only when they are whole.
    if (anchor != 0 && (kind == Node::Kind::kNull || kind == Node::Kind::kScalar)) anchors_[anchor] = &node;
    return node;
  }
  [[noreturn]] static void too_many(Flaw flaw) {
    flaw.message =
        "must have at most " + std::to_string(kMaxNodes) + " values, with aliases counted as what they stand for";
    throw Stop{std::move(flaw)};
  }
  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, Node::Kind kind) { attach(make(mark, anchor, kind)); }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    if (static_cast<int>(open_.size()) >= kMaxDepth) too_deep(mark);
    Node& node = make(mark, anchor, kind);
    refuse_tag(node, tag);
    open_.push_back({&node, anchor, nullptr});
  }
  void close() {
    const Open done = open_.back();
    open_.pop_back();
    if (done.anchor != 0) anchors_[done.anchor] = done.node;
    attach(*done.node);
  }

  // Whether what comes next is the key of a mapping.
  [[nodiscard]] bool awaits_key() const {
    return !open_.empty() && open_.back().node->is_mapping() && open_.back().key == nullptr;
  }

  void attach(const Node& node) {
    if (open_.empty()) {
      tree_.roots.push_back(&node);
      return;
    }
    Open& parent = open_.back();
    Node& into = *parent.node;
    into.nodes += node.nodes;
    if (into.nodes > kMaxNodes) too_many({node.line, node.column, {}});
    into.height = std::max<std::uint8_t>(into.height, node.height + 1);
    if (into.is_sequence()) {
      into.items.push_back(&node);
    } else if (parent.key == nullptr) {
      parent.key = &node;
    } else {
      add_entry(into, *parent.key, node);
      parent.key = nullptr;
    }
  }
  void add_entry(Node& mapping, const Node& key, const Node& value) {
    if (!key.is_scalar()) {
      tree_.flaws.push_back({key.line, key.column, "a key must be text, got " + shown(key)});
      return;
    }
    mapping.entries.push_back({key.text, key.line, key.column, &value});
  }

  // Tags would choose other types than the reader expects: none but the plain ones is understood.
  void refuse_tag(const Node& node, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!" || tag.starts_with("tag:yaml.org,2002:")) return;
    tree_.flaws.push_back({node.line, node.column, "tags are not read, got \"" + base::shortened(tag, 64) + "\""});
  }

  void refuse_duplicates(Node& mapping) {
    std::unordered_map<std::string, int> lines;
    std::erase_if(mapping.entries, [&](const Entry& entry) {
      const auto [first, fresh] = lines.emplace(entry.key, entry.line);
      if (fresh) return false;
      tree_.flaws.push_back({entry.line, entry.column,
                             "key \"" + base::shortened(entry.key, 64) + "\" is given twice, first on line " +
                                 std::to_string(first->second)});
      return true;
    });
  }

  Columns columns_;
  Tree& tree_;
  Expand variables_;
  int document_at_ = -1;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, const Node*> anchors_;
};

// Line and column of a byte.
Flaw flaw_at(std::string_view text, std::size_t position, std::string message) {
  Flaw flaw{1, 1, std::move(message)};
  for (std::size_t i = 0; i < position; ++i) {
    if (text[i] == '\n') {
      ++flaw.line;
      flaw.column = 1;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++flaw.column;
    }
  }
  return flaw;
}

std::string hex_byte(char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return std::string("0x") + kDigits[value >> 4] + kDigits[value & 15];
}

}  // namespace

bool Node::is_boolean() const noexcept {
  return is_scalar() && !quoted &&
         (text == "true" || text == "false" || text == "True" || text == "False" || text == "TRUE" || text == "FALSE");
}

bool Node::is_true() const noexcept { return is_boolean() && (text[0] == 't' || text[0] == 'T'); }

const Node* Node::find(std::string_view key) const noexcept {
  for (const Entry& entry : entries) {
    if (entry.key == key) return entry.value;
  }
  return nullptr;
}

bool same(const Node& a, const Node& b) noexcept {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size() ||
      a.entries.size() != b.entries.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!same(*a.items[i], *b.items[i])) return false;
  }
  // Large mappings are compared in written order only: looking each key up would take forever.
  constexpr std::size_t kLarge = 64;
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const Entry& entry = a.entries[i];
    const bool aligned = b.entries[i].key == entry.key;
    const Node* other = aligned ? b.entries[i].value : a.entries.size() <= kLarge ? b.find(entry.key) : nullptr;
    if (other == nullptr || !same(*entry.value, *other)) return false;
  }
  return true;
}

std::string shown(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull: return "nothing";
    case Node::Kind::kSequence: return "a list";
    case Node::Kind::kMapping: return "a mapping";
    case Node::Kind::kScalar: break;
  }
  if (!node.quoted && (node.is_boolean() || parse_decimal(node.text))) return base::shortened(node.text, 64);
  std::string text = base::shortened(node.text, 64);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return '"' + text + '"';
}

Tree parse(std::string_view text, Expand variables) {
  Tree tree;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t bad = base::find_not_text(text);
  if (bad != std::string_view::npos) {
    tree.flaws.push_back(flaw_at(text, bad, "must be UTF-8 text, got byte " + hex_byte(text[bad])));
    return tree;
  }
  const std::string readable = with_joined_surrogates(text);
  try {
    std::istringstream in(readable);
    YAML::Parser parser(in);
    Builder builder(readable, tree, variables);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop& stop) {
    tree.flaws.push_back(stop.flaw);
  } catch (const YAML::Exception& e) {
    const std::string message = "cannot be read as YAML or JSON: " + base::shortened(e.msg, 200);
    Columns columns(readable);
    // The parser's column at the end of the text is not to be relied on.
    if (e.mark.is_null() || e.mark.pos + 1 >= static_cast<int>(readable.size())) {
      tree.flaws.push_back(flaw_at(readable, readable.size(), message));
    } else {
      tree.flaws.push_back({e.mark.line + 1, columns.at(e.mark), message});
    }
  }
  return tree;
}

}  // namespace headgate::policy
