#include "cli/view/top_frame.h"

#include <nlohmann/json.hpp>

#include "cli/view/table.h"

namespace headgate::cli {
namespace {

TopView some_view() {
  TopView view;
  view.url = "http://127.0.0.1:7070";
  Overview overview;
  overview.version = "9.8.7";
  overview.uptime = std::chrono::hours{3};
  overview.allowed = 1'234'567;
  overview.denied = 34'567;
  overview.checks_per_second = 532.4;
  overview.denied_per_second = 12.5;
  overview.load = 0.85;
  overview.load_level = "high";
  overview.load_factor = 0.5;
  overview.agents = {{"builder", 900'000, 12, false}, {"alpha", 300'000, 30'000, true}, {"zeta", 500'000, 4, false}};
  overview.top_policies = {{"ui-component-creation", 1'000, 30'012}, {"everyone", 1'233'567, 4'555}};
  view.overview = overview;
  view.checks = {100, 500, 532};
  view.denials = {0, 1, 12};
  return view;
}

std::size_t at(const std::vector<std::string>& lines, std::string_view text) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(text) != std::string::npos) return i;
  }
  return lines.size();
}

std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      i = line.find('m', i);
    } else {
      out += line[i];
    }
  }
  return out;
}

TEST(TopFrame, FitsEveryTerminal) {
  TopView view = some_view();
  for (int i = 0; i < 40; ++i) view.overview->agents.push_back({"agent-" + std::string(60, 'x'), 1, 1, true});
  view.overview->emergency = true;
  view.overview->emergency_reason = std::string(300, 'r');
  view.queue.emplace();
  view.queue->line.resize(40);
  for (QuotaQueue::Waiting& waiting : view.queue->line) waiting.user = std::string(60, 'u');
  for (const char* trouble : {"", "cannot reach http://127.0.0.1:7070: connection refused; is the server running?"}) {
    view.trouble = trouble;
    for (const int columns : {20, 40, 60, 79, 80, 81, 120, 250}) {
      for (const int rows : {5, 10, 24, 60}) {
        for (const bool fancy : {false, true}) {
          Terminal terminal;
          terminal.colour = fancy;
          terminal.unicode = fancy;
          const auto lines = top_frame(view, {columns, rows}, terminal);
          EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows));
          for (const std::string& line : lines) {
            EXPECT_LE(columns_of(plain(line)), static_cast<std::size_t>(columns)) << line;
            EXPECT_FALSE(line.ends_with(' ')) << line;
          }
        }
      }
    }
  }
}

TEST(TopFrame, ShowsWhoRunsCommandsAndTheFirstWhoWait) {
  TopView view = some_view();
  EXPECT_EQ(at(top_frame(view, {80, 24}, Terminal{}), "running"), 24U);
  view.queue.emplace();
  view.queue->running = 2;
  view.queue->waiting = 9;
  view.queue->factor = 0.3;
  for (unsigned i = 1; i <= 9; ++i) {
    QuotaQueue::Waiting waiting;
    waiting.user = "user-" + std::to_string(i);
    waiting.type = "shell";
    waiting.position = i;
    waiting.waited = std::chrono::seconds{10 - i};
    view.queue->line.push_back(waiting);
  }
  const auto lines = top_frame(view, {80, 24}, Terminal{});
  const std::size_t commands = at(lines, "commands 2 running, 9 waiting, at 30 % of full speed");
  ASSERT_LT(commands, lines.size());
  EXPECT_EQ(lines.at(commands + 1), "in line  1 user-1 shell (9s), 2 user-2 shell (8s), 3 user-3 shell (7s), ...");
}

TEST(TopFrame, SortsAsItIsTold) {
  TopView view = some_view();
  const auto order = [&](TopSort sort) {
    view.sort = sort;
    const auto lines = top_frame(view, {80, 24}, Terminal{});
    return std::array{at(lines, "alpha"), at(lines, "builder"), at(lines, "zeta")};
  };
  const auto by_allowed = order(TopSort::kAllowed);
  EXPECT_LT(by_allowed[1], by_allowed[2]);
  EXPECT_LT(by_allowed[2], by_allowed[0]);
  const auto by_denied = order(TopSort::kDenied);
  EXPECT_LT(by_denied[0], by_denied[1]);
  EXPECT_LT(by_denied[1], by_denied[2]);
  const auto by_name = order(TopSort::kName);
  EXPECT_LT(by_name[0], by_name[1]);
  EXPECT_LT(by_name[1], by_name[2]);
}

TEST(TopFrame, PutsTablesSideBySideOnlyWhereTheyFit) {
  const auto wide = top_frame(some_view(), {80, 24}, Terminal{});
  EXPECT_EQ(at(wide, "AGENT"), at(wide, "POLICY"));
  const auto narrow = top_frame(some_view(), {79, 24}, Terminal{});
  EXPECT_LT(at(narrow, "AGENT"), at(narrow, "POLICY"));
  EXPECT_LT(at(narrow, "POLICY"), narrow.size());
}

TEST(TopFrame, SaysThatTheServerIsAwayAndKeepsWhatItKnew) {
  TopView view = some_view();
  view.trouble = "connection refused";
  const auto lines = top_frame(view, {80, 24}, Terminal{});
  EXPECT_LT(at(lines, "no answer: connection refused; trying again"), lines.size());
  EXPECT_LT(at(lines, "builder"), lines.size());
}

TEST(TopFrame, ShowsTheEmergencyAndItsReason) {
  TopView view = some_view();
  view.overview->emergency = true;
  view.overview->emergency_reason = "runaway\033[2Jagents";
  const auto lines = top_frame(view, {80, 24}, Terminal{});
  EXPECT_LT(at(lines, "emergency ON: runaway?[2Jagents"), lines.size());
}

TEST(TopFrame, HelpExplainsTheKeys) {
  TopView view = some_view();
  view.help = true;
  const auto lines = top_frame(view, {80, 24}, Terminal{});
  EXPECT_LT(at(lines, "q  quit"), lines.size());
  EXPECT_EQ(at(lines, "builder"), lines.size());
}

TEST(TopFrame, SparklinesScaleToTheirLargest) {
  EXPECT_EQ(sparkline({0, 1, 4, 8}, 10, false), "_.=@");
  EXPECT_EQ(sparkline({0, 1, 4, 8}, 10, true), " ▁▄█");
  EXPECT_EQ(sparkline({}, 10, true), "");
  EXPECT_EQ(sparkline({1, 8, 0, 0}, 2, false), "@_");
}

TEST(Overview, ReadsWhatIsThereAndDoesWithoutTheRest) {
  const auto json = nlohmann::ordered_json::parse(
      R"({"version":3,"checks":{"allowed":5,"denied":-1},"load":{"load":null,"level":"normal"},"top_agents":[{},7]})");
  const Overview overview = read_overview(json);
  EXPECT_EQ(overview.version, "");
  EXPECT_EQ(overview.allowed, 5U);
  EXPECT_EQ(overview.denied, 0U);
  EXPECT_FALSE(overview.load.has_value());
  EXPECT_EQ(load_text(overview), "normal");
  EXPECT_EQ(overview.agents.size(), 2U);
  EXPECT_EQ(read_overview(nlohmann::ordered_json(7)).allowed, 0U);
}

TEST(Overview, ShortCountsKeepToFiveColumns) {
  EXPECT_EQ(short_count(999), "999");
  EXPECT_EQ(short_count(1'000), "1.0k");
  EXPECT_EQ(short_count(99'949), "99.9k");
  EXPECT_EQ(short_count(99'951), "100k");
  EXPECT_EQ(short_count(999'499), "999k");
  EXPECT_EQ(short_count(999'500), "1.0M");
  EXPECT_EQ(short_count(12'345'678), "12.3M");
  for (std::uint64_t count = 1; count < (1ULL << 62); count *= 3) EXPECT_LE(short_count(count).size(), 5U) << count;
}

}  // namespace
}  // namespace headgate::cli
