// Plays scenario files (see README.md) and tells every row that went otherwise.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "base/rfc3339.h"
#include "base/text.h"
#include "engine/simulate.h"
#include "policy/number.h"
#include "policy/reader.h"

namespace headgate::test {
namespace {

using engine::Field;
using engine::TraceStep;

struct Failure {
  std::string message;
};
[[noreturn]] void fail(std::string message) { throw Failure{std::move(message)}; }

struct Expectation {
  std::string name;
  bool part = false;  // name~value: contains
  std::string value;
};

struct Row {
  int line = 0;
  bool event = false;
  Nanos at{0};
  std::size_t times = 1;
  Nanos every{0};
  std::string as;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string verdict;
  std::vector<Expectation> expected;
};

// What came of one check.
struct Seen {
  Nanos at{0};
  std::string verdict;
  std::map<std::string, std::string> texts;
  std::map<std::string, double> numbers;  // spans in nanoseconds
  std::vector<std::string> warnings;      // "approaching:p"
};

// Words between blanks; quotes keep blanks together, wherever in a word they begin.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
      begun = true;
    } else if (!quoted && (c == ' ' || c == '\t')) {
      if (begun) words.push_back(std::move(word));
      word.clear();
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  if (quoted) fail("a quote is not closed");
  if (begun) words.push_back(std::move(word));
  return words;
}

Nanos span_of(const std::string& text) {
  const auto span = policy::parse_duration(text);
  if (!span) fail(fmt::format("\"{}\" is not a span such as 500ms or 60s", text));
  return *span;
}

std::size_t bar_of(std::string_view line) {
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '|' && !quoted) return i;
  }
  return std::string_view::npos;
}

void read_fields(const std::vector<std::string>& words, std::size_t from, Row& row) {
  for (std::size_t i = from; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      std::string name = word.substr(0, equals);
      if (name == "context") name = "context.type";
      if (name == "as") {
        row.as = word.substr(equals + 1);
      } else {
        row.fields.emplace_back(name, word.substr(equals + 1));
      }
    } else if (word.size() > 1 && word[0] == 'x' && word.find_first_not_of("0123456789", 1) == std::string::npos) {
      constexpr std::size_t kMost = 1'000'000;
      row.times = std::stoul(word.substr(1));
      if (row.times == 0 || row.times > kMost) fail(fmt::format("{} must be x1 to x{}", word, kMost));
    } else if (word == "every" && i + 1 < words.size()) {
      row.every = span_of(words[++i]);
    } else {
      fail(fmt::format("\"{}\" is no field=value, xN or every SPAN", word));
    }
  }
}

Row read_row(std::string_view line, Nanos before) {
  Row row;
  const std::size_t bar = bar_of(line);
  const std::vector<std::string> words = words_of(line.substr(0, bar));
  if (words.size() < 3) fail("a row needs a time, an agent (or -, or !) and an operation");
  row.at = words[0][0] == '+' ? before + span_of(words[0].substr(1)) : span_of(words[0]);
  row.event = words[1] == "!";
  if (row.event) {
    row.fields.emplace_back("event", words[2]);
  } else {
    if (words[1] != "-") row.fields.emplace_back("agent", words[1]);
    row.fields.emplace_back("operation", words[2]);
  }
  read_fields(words, 3, row);
  if (row.event != (bar == std::string_view::npos)) {
    fail(row.event ? "an event expects nothing: no |" : "a check needs | and what must hold");
  }
  if (row.event) return row;
  const std::vector<std::string> expected = words_of(line.substr(bar + 1));
  if (expected.empty()) fail("after | there must be allow, deny or invalid");
  row.verdict = expected[0];
  if (row.verdict != "allow" && row.verdict != "deny" && row.verdict != "invalid") {
    fail(fmt::format("\"{}\" must be allow, deny or invalid", row.verdict));
  }
  for (std::size_t i = 1; i < expected.size(); ++i) {
    const std::size_t at = expected[i].find_first_of("=~");
    if (at == std::string::npos) fail(fmt::format("\"{}\" is no name=value", expected[i]));
    row.expected.push_back({expected[i].substr(0, at), expected[i][at] == '~', expected[i].substr(at + 1)});
  }
  return row;
}

struct Scenario {
  policy::Document document;
  Nanos start{0};
  std::vector<Row> rows;
};

Scenario read_scenario(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot be read");
  Scenario scenario;
  std::string yaml;
  std::string beside;
  bool in_policies = false;
  bool has_policies = false;
  std::string line;
  Nanos before{0};
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    const bool blank = line.find_first_not_of(" \t") == std::string::npos;
    if (in_policies && (blank || line[0] == ' ')) {
      yaml += line + "\n";
      continue;
    }
    in_policies = false;
    yaml += "\n";  // so that its lines keep their numbers
    if (blank || line[0] == '#') continue;
    try {
      if (line.starts_with("start:")) {
        const std::string text = words_of(line.substr(6)).at(0);
        const auto start = base::parse_rfc3339(text);
        if (!start) fail(fmt::format("start must be RFC 3339, got \"{}\"", text));
        scenario.start = *start;
      } else if (line.starts_with("policies:")) {
        const std::vector<std::string> words = words_of(line.substr(9));
        has_policies = true;
        in_policies = words.empty();
        if (!words.empty()) beside = words[0];
      } else {
        scenario.rows.push_back(read_row(line, before));
        scenario.rows.back().line = number;
        before = scenario.rows.back().at;
      }
    } catch (const Failure& failure) {
      fail(fmt::format("{}: {}", number, failure.message));
    }
  }
  if (has_policies) {
    policy::ReadResult read = beside.empty()
                                  ? policy::read_text(yaml, path)
                                  : policy::read_paths({(std::filesystem::path(path).parent_path() / beside).string()});
    if (!read.ok()) fail(read.problems.front().text());
    scenario.document = std::move(read.document);
  }
  if (scenario.rows.empty()) fail("has no rows");
  return scenario;
}

Seen seen_of(const engine::Decided& decided) {
  const engine::CheckDecision& decision = *decided.decision;
  Seen seen;
  seen.at = decided.at;
  seen.texts["reason"] = decision.reason();
  seen.texts["error"] = decision.error();
  if (decision.why == engine::Why::kInvalid) {
    seen.verdict = "invalid";
    return seen;
  }
  seen.verdict = decision.allowed ? "allow" : "deny";
  seen.texts["action"] = decision.action_text();
  seen.texts["tier"] = decision.tier;
  seen.texts["lease"] = decision.lease.empty() ? "no" : "yes";
  if (const policy::Policy* by = decision.denied_by()) {
    seen.texts["policy"] = by->id;
    seen.texts["message"] = by->message;
  }
  std::string& ids = seen.texts["policies"];
  for (const engine::Judged& judged : decision.judged) {
    if (!judged.parent) ids += (ids.empty() ? "" : ",") + decision.policy(judged).id;
  }
  const auto nanos = [](Nanos span) { return static_cast<double>(span.count()); };
  seen.numbers["limit"] = decision.limit;
  seen.numbers["remaining"] = decision.remaining;
  seen.numbers["retry"] = decision.retry_after == kNever ? -1 : decision.allowed ? 0 : nanos(decision.retry_after);
  seen.numbers["delay"] = nanos(decision.delay + (decision.allowed ? decision.waited : Nanos{0}));
  seen.numbers["waited"] = nanos(decision.waited);
  seen.numbers["reset"] = nanos(decision.reset_time() - decided.time);
  for (const engine::Warning& warning : decision.warnings) {
    seen.warnings.push_back(fmt::format("{}:{}", to_string(warning.kind), decision.policy(warning.policy).id));
  }
  return seen;
}

// Empty: it holds.
std::string complaint(const Expectation& expected, const Seen& seen, bool last) {
  if (expected.name == "warn") {
    const std::string got = fmt::format("{}", fmt::join(seen.warnings, ","));
    bool holds = expected.value == "none" && seen.warnings.empty();
    for (const std::string& warning : seen.warnings) {
      holds = holds || warning == expected.value || warning.starts_with(expected.value + ":");
    }
    if (holds || !last) return {};
    return fmt::format("warn must be {}, is {}", expected.value, got.empty() ? "none" : got);
  }
  if (const auto text = seen.texts.find(expected.name); text != seen.texts.end()) {
    const bool holds =
        expected.part ? text->second.find(expected.value) != std::string::npos : text->second == expected.value;
    if (holds) return {};
    return fmt::format("{} must {} \"{}\", is \"{}\"", expected.name, expected.part ? "contain" : "be", expected.value,
                       text->second);
  }
  const auto number = seen.numbers.find(expected.name);
  if (number == seen.numbers.end()) {
    const bool known = expected.name == "policy" || expected.name == "message";
    return known ? fmt::format("{} must be \"{}\", there is none", expected.name, expected.value)
                 : fmt::format("there is nothing called \"{}\" to expect", expected.name);
  }
  if (!last) return {};
  const bool span = expected.name != "limit" && expected.name != "remaining";
  const double wanted = expected.value == "never" ? -1
                        : span                    ? static_cast<double>(span_of(expected.value).count())
                                                  : std::stod(expected.value);
  // Spans to the microsecond: rates that do not divide a nanosecond are rounded somewhere.
  const double off = std::abs(number->second - wanted);
  if (span ? off < 1000 : off < 1e-9) return {};
  const std::string got = !span                  ? fmt::format("{}", number->second)
                          : number->second == -1 ? "never"
                                                 : base::format_duration(Nanos{std::llround(number->second)});
  return fmt::format("{} must be {}, is {}", expected.name, expected.value, got);
}

class Player {
 public:
  Player(std::string path, Scenario scenario) : path_(std::move(path)), scenario_(std::move(scenario)) {}

  int play() {
    engine::SimulateOptions options;
    options.start = scenario_.start;
    options.directory = std::filesystem::path(path_).parent_path().string();
    options.on_decided = [this](const engine::Decided& decided) { seen_[decided.index] = seen_of(decided); };
    engine::Simulation simulation(std::move(options));
    if (const auto loaded = simulation.load(scenario_.document); !loaded) fail(loaded.error().message);
    for (std::size_t r = 0; r < scenario_.rows.size(); ++r) {
      const Row& row = scenario_.rows[r];
      for (std::size_t n = 0; n < row.times; ++n) {
        try {
          step(simulation, row, row.at + row.every * static_cast<std::int64_t>(n));
        } catch (const Failure& failure) {
          fail(fmt::format("{}: {}", row.line, failure.message));
        }
        asked_.push_back({r, n + 1 == row.times});
      }
    }
    simulation.finish();
    return judge();
  }

 private:
  struct Asked {
    std::size_t row = 0;
    bool last = true;
  };

  void step(engine::Simulation& simulation, const Row& row, Nanos at) {
    if (at < now_) fail("time must not go backwards");
    now_ = at;
    engine::LineFields fields;
    for (const auto& [name, text] : row.fields) set(fields, name, text);
    fields.finish();
    TraceStep step;
    step.at = at;
    step.index = asked_.size();
    step.line = row.line;
    if (const auto made = engine::to_step(fields, step); !made) fail(made.error().message);
    if (!row.as.empty()) leases_[row.as] = std::to_string(step.index);
    if (const auto stepped = simulation.step(step); !stepped) fail(stepped.error().message);
  }

  void set(engine::LineFields& fields, const std::string& name, const std::string& text) {
    const std::size_t dot = name.find('.');
    const auto field = engine::field_named(name.substr(0, dot), engine::kTraceFields);
    if (!field) fail(engine::unknown_field(name, engine::kTraceFields, "a row").message);
    engine::Scalar value;
    value.kind = engine::Scalar::Kind::kUntyped;
    value.text = text;
    if (*field == Field::kLease) {
      const auto named = leases_.find(text);
      if (named == leases_.end()) fail(fmt::format("no row before has as={}", text));
      value.text = named->second;
    }
    const std::string_view part =
        dot == std::string::npos ? std::string_view() : std::string_view(name).substr(dot + 1);
    if (const auto done = fields.set(*field, part, value); !done) fail(done.error().message);
  }

  int judge() {
    int failures = 0;
    const auto tell = [&](const Row& row, Nanos at, const std::string& what) {
      constexpr int kMostTold = 50;
      if (++failures <= kMostTold) fmt::print("{}:{}: at {}: {}\n", path_, row.line, base::format_duration(at), what);
    };
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const Row& row = scenario_.rows[asked_[i].row];
      if (row.event) continue;
      const auto found = seen_.find(i);
      if (found == seen_.end()) {
        tell(row, row.at, "was never answered");
        continue;
      }
      const Seen& seen = found->second;
      if (seen.verdict != row.verdict) {
        tell(row, seen.at, fmt::format("must {}, was {}: {}", row.verdict, seen.verdict, seen.texts.at("reason")));
        continue;
      }
      for (const Expectation& expected : row.expected) {
        const std::string what = complaint(expected, seen, asked_[i].last);
        if (!what.empty()) tell(row, seen.at, what);
      }
    }
    return failures;
  }

  std::string path_;
  Scenario scenario_;
  Nanos now_{0};
  std::vector<Asked> asked_;
  std::map<std::uint64_t, Seen> seen_;
  std::map<std::string, std::string> leases_;
};

}  // namespace
}  // namespace headgate::test

int main(int argc, char** argv) {
  using namespace headgate::test;
  int failures = argc < 2 ? 1 : 0;
  if (argc < 2) fmt::print("usage: headgate_scenarios FILE.scenario...\n");
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    try {
      Scenario scenario = read_scenario(path);
      const std::size_t rows = scenario.rows.size();
      const int failed = Player(path, std::move(scenario)).play();
      failures += failed;
      fmt::print("{}: {} rows, {} went otherwise\n", path, rows, failed);
    } catch (const Failure& failure) {
      fmt::print("{}:{}\n", path, failure.message);
      ++failures;
    } catch (const std::exception& error) {
      fmt::print("{}: {}\n", path, error.what());
      ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}
