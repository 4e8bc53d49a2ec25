#include "cli/quota/quota_view.h"

#include <nlohmann/json.hpp>

#include "cli/quota/quota_days.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

std::string without_colours(std::string_view line) {
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

void expect_fits(const std::string& text, const Terminal& terminal) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = without_colours(std::string_view(text).substr(at, end - at));
    EXPECT_LE(columns_of(line), static_cast<std::size_t>(terminal.width)) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
    at = end + 1;
  }
}

TEST(QuotaView, ABarIsEmptyOnlyWithNothingUsedAndFullOnlyWithNothingLeft) {
  EXPECT_EQ(quota_bar({0, 500}, 5, false), ".....");
  EXPECT_EQ(quota_bar({1, 500}, 5, false), "#....");
  EXPECT_EQ(quota_bar({250, 500}, 4, false), "##..");
  EXPECT_EQ(quota_bar({499, 500}, 5, false), "####.");
  EXPECT_EQ(quota_bar({500, 500}, 5, false), "#####");
  EXPECT_EQ(quota_bar({700, 500}, 5, true), "█████");
  EXPECT_EQ(quota_bar({0, 0}, 3, false), "###");
  EXPECT_EQ(quota_bar({1, 2}, 0, false), "");
}

TEST(QuotaView, ColoursChangeAtHalfAndAtFourFifths) {
  EXPECT_EQ(quota_ink({49, 100}), Ink::kGreen);
  EXPECT_EQ(quota_ink({50, 100}), Ink::kYellow);
  EXPECT_EQ(quota_ink({80, 100}), Ink::kYellow);
  EXPECT_EQ(quota_ink({81, 100}), Ink::kRed);
  EXPECT_EQ(quota_ink({0, 0}), Ink::kRed);
  EXPECT_EQ(quota_ink({9, std::nullopt}), Ink::kDim);
}

TEST(QuotaView, APageFitsEveryTerminal) {
  QuotaStatus status;
  status.user = "ana";
  status.plan = "free";
  status.timezone = "America/Argentina/Tucuman";
  status.warning = "Only 9 shell commands left today, and this goes on for a while so that it has to be broken";
  status.resets_at = {1h, 48h, 720h};
  for (const char* name : {"shell", "a-type-with-a-rather-long-name-that-goes-on-and-on"}) {
    status.types.push_back(
        {name, {QuotaUse{3, 500}, QuotaUse{999'999'999'999, 1'000'000'000'000}, QuotaUse{123'456'789, std::nullopt}}});
  }
  for (const int width : {40, 60, 79, 80, 120, 400}) {
    for (const bool fancy : {false, true}) {
      const Terminal terminal{width, fancy, fancy};
      expect_fits(quota_page(status, 0s, terminal), terminal);
      status.types.resize(1);
      expect_fits(quota_page(status, 0s, terminal), terminal);
      status.types.push_back({std::string(50, 'x'), {}});
    }
  }
}

TEST(QuotaView, WhatIsMissingOrStrangeReadsAsNothing) {
  for (const char* text : {"null", "[]", "{}", R"({"daily": 3, "rule": 4, "line": {}, "runs": "x"})",
                           R"({"daily": {"shell": 7}, "weekly": [1, 2], "line": [1], "runs": [null]})"}) {
    const ordered_json json = ordered_json::parse(text);
    const QuotaStatus status = read_quota_status(json);
    EXPECT_EQ(status.factor, 1) << text;
    EXPECT_NE(quota_page(status, 0s, Terminal{}), "");
    EXPECT_EQ(read_quota_queue(json).waiting, 0U);
  }
}

TEST(QuotaView, FieldsOfARuleAreNamedForPeople) {
  const auto rule = ordered_json::parse(
      R"({"plan": "premium", "timezone": "", "mode": null, "types": {"shell": {"daily": 5000, "weekly": "unlimited"}}})");
  EXPECT_EQ(quota_fields(rule),
            (QuotaFields{{"plan", "premium"}, {"shell daily", "5,000"}, {"shell weekly", "unlimited"}}));
}

TEST(QuotaView, TheLineIsToldInOneSentence) {
  QuotaQueue queue;
  queue.running = 3;
  EXPECT_EQ(queue_text(queue), "3 running, 0 waiting");
  queue.concurrent = 4;
  queue.waiting = 12;
  queue.factor = 0.6;
  EXPECT_EQ(queue_text(queue), "3 running of 4, 12 waiting, at 60 % of full speed");
  queue.factor = 0;
  EXPECT_EQ(queue_text(queue), "3 running of 4, 12 waiting, none may start");
}

TEST(QuotaDays, OnlyDatesThatExistAreDays) {
  EXPECT_EQ(day_text(*parse_day("2028-02-29")), "2028-02-29");
  for (const char* text : {"2026-02-29", "2026-13-01", "2026-00-01", "2026-1-01", "2026-01-1x", "", "2026/01/01"}) {
    EXPECT_FALSE(parse_day(text)) << text;
  }
  EXPECT_EQ(day_text(day_of(24h * 365)), "1971-01-01");
}

TEST(QuotaDays, SinceIsASpanADayOrAnInstantInThePast) {
  const Nanos now = 24h * 20'000;
  EXPECT_EQ(*parse_since("7d", now), now - 24h * 7);
  EXPECT_EQ(*parse_since("2024-01-01", now), parse_day("2024-01-01")->time_since_epoch());
  EXPECT_EQ(*parse_since("2024-01-01T01:00:00Z", now), parse_day("2024-01-01")->time_since_epoch() + 1h);
  for (const char* text : {"", "0s", "-1d", "2100-01-01", "2024-02-30", "99999d", "soon"}) {
    EXPECT_FALSE(parse_since(text, now)) << text;
  }
}

TEST(QuotaDays, AGraphFitsEveryTerminalAndShowsDaysWithoutAny) {
  const Day last = *parse_day("2026-11-16");
  std::vector<UsageDay> rows;
  for (int i = 0; i < 3; ++i) {
    UsageDay row;
    row.day = last - std::chrono::days{2 * i};
    row.commands = 1'000'000'000'000U / static_cast<unsigned>(i + 1);
    row.refused = 5;
    row.would_refuse = 7;
    rows.push_back(row);
  }
  for (const int width : {40, 80, 200}) {
    for (const int days : {1, 7, 14, 15, 90, 3000}) {
      for (const bool fancy : {false, true}) {
        const Terminal terminal{width, fancy, fancy};
        const std::string graph = usage_graph(rows, last - std::chrono::days{days - 1}, last, terminal);
        if (width >= 80) expect_fits(graph, terminal);
        const auto lines = static_cast<int>(std::count(graph.begin(), graph.end(), '\n'));
        EXPECT_EQ(lines, days <= 14 ? std::max(days, 5) : 3);
      }
    }
  }
}

}  // namespace
}  // namespace headgate::cli
