// /api/admin/policies: layers, versions, and going back.
#include <filesystem>
#include <fstream>

#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

// A policy file of its own, gone at the end.
class PolicyFile {
 public:
  explicit PolicyFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "headgate-api-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    write(text);
  }
  ~PolicyFile() { std::filesystem::remove_all(folder_); }
  PolicyFile(const PolicyFile&) = delete;
  PolicyFile& operator=(const PolicyFile&) = delete;
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  [[nodiscard]] std::string path() const { return folder_ + "/p.yaml"; }

 private:
  std::string folder_;
};

test::ApiServerOptions with(const PolicyFile& file, state::Database* database = nullptr) {
  test::ApiServerOptions options;
  options.paths = {file.path()};
  options.database = database;
  return options;
}

std::vector<std::string> ids(ApiServer& server) {
  std::vector<std::string> all;
  const Json policies = server.get("/api/admin/policies").json()["policies"];
  for (const Json& each : policies) {
    all.push_back(each["id"].get<std::string>() + "=" + each["limits"][0].get<std::string>() + " " +
                  each["source"].get<std::string>());
  }
  return all;
}
using Ids = std::vector<std::string>;

constexpr const char* kFiles = "policies:\n  - {id: a, limit: 1/60s}\n  - {id: b, limit: 2/60s}\n";

TEST(PoliciesApi, TellsWhatIsInForce) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  const Json body = server.get("/api/admin/policies").json();
  EXPECT_EQ(body["version"], 1);
  EXPECT_EQ(body["source"], "files");
  EXPECT_EQ(body["text"], kFiles);
  EXPECT_EQ(
      body["policies"][0].dump(),
      R"({"id":"a","name":"","mode":"enforce","priority":0,"limits":["sliding_window 1/60s"],"action":"block",)"
      R"("behavior":"reject","key":["agent"],"unit":"requests","least_cost":null,"holds":true,"source":"files"})");
}

TEST(PoliciesApi, BuiltInLimitsAreShownAsSuch) {
  ApiServer server;
  EXPECT_EQ(server.get("/api/admin/policies").json()["policies"][0]["source"], "built_in");
}

TEST(PoliciesApi, PutReplacesAllAndKeepsAVersion) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  const Answer put = server.put("/api/admin/policies", R"({"policies":[{"id":"c","limit":"3/60s"}]})");
  EXPECT_EQ(put.body, R"({"version":2,"policies":1})");
  EXPECT_EQ(ids(server), Ids{"c=sliding_window 3/60s api"});
  EXPECT_EQ(server.put("/api/admin/policies", R"({"text":"policies: [{id: d, limit: 4/60s}]"})").json()["version"], 3);
  EXPECT_EQ(ids(server), Ids{"d=sliding_window 4/60s api"});
  const Json entry = server.get("/api/admin/audit?limit=1").json()["entries"][0];
  EXPECT_EQ(entry["action"], "policies.replace");
  EXPECT_EQ(entry["after"]["text"], "policies: [{id: d, limit: 4/60s}]");
  ApiServer restarted(with(file, server.service.database));
  EXPECT_EQ(ids(restarted), Ids{"d=sliding_window 4/60s api"});
  // The files wait until they are wanted again.
  EXPECT_EQ(restarted.remove("/api/admin/policies").status, 200);
  EXPECT_EQ(ids(restarted), (Ids{"a=sliding_window 1/60s files", "b=sliding_window 2/60s files"}));
}

TEST(PoliciesApi, BadDocumentIsRefusedWithAllProblemsAndTheOldServesOn) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  const Answer bad =
      server.manage(Method::kPut, "/api/admin/policies", "policies:\n  - {id: x, limit: 0/60s}\n  - {limit: 1/60s}\n",
                    {{"Content-Type", "application/yaml"}});
  EXPECT_EQ(bad.status, 400);
  const Json body = bad.json();
  EXPECT_EQ(body["error"], "invalid_policies");
  ASSERT_EQ(body["problems"].size(), 2U) << bad.body;
  EXPECT_EQ(body["problems"][0]["file"], "document");
  EXPECT_EQ(body["problems"][0]["line"], 2);
  EXPECT_NE(body["message"].get<std::string>().find("(and 1 more)"), std::string::npos);
  EXPECT_EQ(ids(server), (Ids{"a=sliding_window 1/60s files", "b=sliding_window 2/60s files"}));
  EXPECT_EQ(server.get("/api/admin/policies").json()["version"], 1);
  EXPECT_EQ(server.service.database->versions(10)->size(), 1U);
}

TEST(PoliciesApi, SinglePoliciesLieOverTheFilesAndSurviveReloads) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  EXPECT_EQ(server.put("/api/admin/policies/a", R"({"id":"a","limit":"9/60s"})").status, 200);
  EXPECT_EQ(server.put("/api/admin/policies/n", R"({"id":"n","limit":"7/60s"})").status, 200);
  EXPECT_EQ(server.remove("/api/admin/policies/b").status, 200);
  const Ids changed{"a=sliding_window 9/60s api", "n=sliding_window 7/60s api"};
  EXPECT_EQ(ids(server), changed);
  file.write("policies:\n  - {id: a, limit: 1/60s}\n  - {id: b, limit: 2/60s}\n  - {id: c, limit: 3/60s}\n");
  EXPECT_EQ(server.policies->reload("signal").text(), "");
  const Ids reloaded{"a=sliding_window 9/60s api", "c=sliding_window 3/60s files", "n=sliding_window 7/60s api"};
  EXPECT_EQ(ids(server), reloaded);
  ApiServer restarted(with(file, server.service.database));
  EXPECT_EQ(ids(restarted), reloaded);
  EXPECT_EQ(restarted.remove("/api/admin/policies/b").body,
            R"({"error":"not_found","message":"there is no policy \"b\" that could be deleted"})");
}

TEST(PoliciesApi, YamlOfOnePolicyIsReadAndItsProblemsStandWhereTheyWere) {
  ApiServer server;
  const auto put = [&](const std::string& text) {
    return server.manage(Method::kPut, "/api/admin/policies/y", text, {{"Content-Type", "application/yaml"}});
  };
  EXPECT_EQ(put("id: y\nmatch:\n  operations: [op]\nlimit: 5/60s\n").status, 200);
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").json()["limit"], 5);
  const Json bad = put("id: y\nlimit: 0/60s\n").json();
  EXPECT_EQ(bad["problems"][0]["file"], "policy y");
  EXPECT_EQ(bad["problems"][0]["line"], 2);
  EXPECT_EQ(bad["problems"][0]["column"], 8);
  const Json json = server.put("/api/admin/policies/y", R"({"id":"y","limit":"0/60s"})").json();
  EXPECT_EQ(json["problems"][0]["line"], 1);
  EXPECT_EQ(json["problems"][0]["column"], 19);
  // Nothing can be smuggled into the document around it.
  EXPECT_EQ(put("{id: y, limit: 1/60s}], exempt: [x").status, 400);
  EXPECT_EQ(put("id: y\nlimit: 1/60s\n---\nexempt: [x]\n").status, 400);
}

TEST(PoliciesApi, APolicyNeedNotRepeatTheIdOfItsPath) {
  ApiServer server;
  const auto put = [&](const std::string& text) {
    return server.manage(Method::kPut, "/api/admin/policies/x:1", text, {{"Content-Type", "application/yaml"}});
  };
  int limit = 1;
  const auto taken = [&](const std::string& before, const std::string& after) {
    ++limit;
    const Answer answer = put(before + std::to_string(limit) + after);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return server.check(R"({"agent":"A","operation":"op","peek":true})").json()["limit"] == limit;
  };
  EXPECT_TRUE(taken(R"({"limit": ")", R"(/60s"})"));
  EXPECT_TRUE(taken("{limit: ", "/60s}\n"));
  EXPECT_TRUE(taken("limit: ", "/60s"));
  EXPECT_TRUE(taken("# mine\nlimit: ", "/60s\nmatch:\n  operations: [op]\n"));
  EXPECT_TRUE(taken("  message: x\n  limit: ", "/60s\n"));
  const Json problem = put("message: x\nlimit: 0/60s\n").json()["problems"][0];
  EXPECT_EQ(problem["line"], 2);
  EXPECT_EQ(problem["column"], 8);
  EXPECT_EQ(put("{}").status, 400);
  EXPECT_EQ(put("{limit: 1/60s,} # }").body,
            R"({"error":"invalid_request","message":"the body must be one policy whose id is \"x:1\", as in the path, )"
            R"(got none"})");
  // Nothing can be smuggled into the document around it.
  EXPECT_EQ(put("{limit: 1/60s}], exempt: [{}").status, 400);
}

TEST(PoliciesApi, APolicyOfAnotherIdThanItsPathIsRefused) {
  ApiServer server;
  EXPECT_EQ(server.put("/api/admin/policies/x", R"({"id":"y","limit":"1/60s"})").body,
            R"({"error":"invalid_request","message":"the body must be one policy whose id is \"x\", as in the path, )"
            R"(got \"y\""})");
  EXPECT_EQ(server.put("/api/admin/policies/x", "[]").status, 400);
  EXPECT_EQ(server.put("/api/admin/policies/x", "").status, 400);
}

TEST(PoliciesApi, RollbackRestoresExactlyWhatWas) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  (void)server.put("/api/admin/policies/a", R"({"id":"a","limit":"9/60s"})");
  const Ids was = ids(server);
  (void)server.put("/api/admin/rate-limits/defaults", R"({"light":{"capacity":7}})");
  (void)server.put("/api/admin/policies", "policies: [{id: z, limit: 1/60s}]");
  const Answer back = server.post("/api/admin/policies/rollback", R"({"version":2})");
  EXPECT_EQ(back.body, R"({"version":5,"restored":2})");
  EXPECT_EQ(ids(server), was);
  EXPECT_EQ(server.get("/api/admin/rate-limits").json()["defaults"]["light"]["capacity"], 120);
  const Json versions = server.get("/api/admin/policies/versions").json()["versions"];
  ASSERT_EQ(versions.size(), 5U);
  EXPECT_EQ(versions[0]["source"], "rollback");
  EXPECT_EQ(versions[0]["note"], "back to version 2");
  EXPECT_EQ(versions[4]["source"], "files");
  EXPECT_EQ(server.get("/api/admin/policies/versions/2").json()["text"],
            server.get("/api/admin/policies/versions/5").json()["text"]);
  EXPECT_EQ(server.post("/api/admin/policies/rollback", R"({"version":99})").body,
            R"({"error":"not_found","message":"there is no version 99"})");
  EXPECT_EQ(server.get("/api/admin/policies/versions/x").status, 404);
}

TEST(PoliciesApi, RollbackRestoresFilesThatHaveChangedSince) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  file.write("policies: [{id: q, limit: 5/60s}]");
  ASSERT_EQ(server.policies->reload("signal").text(), "");
  EXPECT_EQ(ids(server), Ids{"q=sliding_window 5/60s files"});
  EXPECT_EQ(server.post("/api/admin/policies/rollback", R"({"version":1})").status, 200);
  EXPECT_EQ(ids(server), (Ids{"a=sliding_window 1/60s api", "b=sliding_window 2/60s api"}));
}

Json newest_change(ApiServer& server) { return server.get("/api/admin/audit?limit=1").json()["entries"][0]; }

TEST(PoliciesApi, TheAuditLogSaysWhichPoliciesAReloadChanged) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  const Json first = server.get("/api/admin/audit?action=policies.").json()["entries"][0];
  EXPECT_EQ(first["before"], nullptr);
  EXPECT_EQ(first["after"].dump(), R"({"version":1,"added":["a","b"]})");
  file.write("# b stands elsewhere now\npolicies:\n  - {id: b, limit: 2/60s}\n  - {id: c, limit: 3/60s}\n");
  ASSERT_EQ(server.policies->reload("signal").text(), "");
  Json entry = newest_change(server);
  EXPECT_EQ(entry["action"], "policies.reload");
  EXPECT_EQ(entry["before"].dump(), R"({"version":1})");
  EXPECT_EQ(entry["after"].dump(), R"({"version":2,"added":["c"],"removed":["a"]})");
  file.write("policies:\n  - {id: b, limit: 20/60s}\n  - {id: c, limit: 3/60s}\n");
  ASSERT_EQ(server.policies->reload("signal").text(), "");
  EXPECT_EQ(newest_change(server)["after"].dump(), R"({"version":3,"changed":["b"]})");
  file.write("policies: [{id: c, limit: 3/60s}]");
  ApiServer restarted(with(file, server.service.database));
  entry = restarted.get("/api/admin/audit?action=policies.&limit=1").json()["entries"][0];
  EXPECT_EQ(entry["action"], "policies.start");
  EXPECT_EQ(entry["before"].dump(), R"({"version":3})");
  EXPECT_EQ(entry["after"].dump(), R"({"version":4,"removed":["b"]})");
}

TEST(PoliciesApi, TheAuditLogNamesFiftyPoliciesOfAChangeAndCountsTheRest) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  std::string text = "policies:\n";
  for (int i = 100; i < 153; ++i) text += "  - {id: p" + std::to_string(i) + ", limit: 1/60s}\n";
  file.write(text);
  ASSERT_EQ(server.policies->reload("signal").text(), "");
  const Json added = newest_change(server)["after"]["added"];
  ASSERT_EQ(added.size(), 51U);
  EXPECT_EQ(added[49], "p149");
  EXPECT_EQ(added[50], "and 3 more");
}

TEST(PoliciesApi, TheAuditLogHasASinglePolicyAsItWasWritten) {
  const PolicyFile file(
      "policies:\n  - id: a\n    limit: 1/60s\n    adaptive: false\n    priority: 3\n    message: '7'\n");
  ApiServer server(with(file));
  const Json was{{"source", "document"},
                 {"file", file.path()},
                 {"line", 2},
                 {"policy", {{"id", "a"}, {"limit", "1/60s"}, {"adaptive", false}, {"priority", 3}, {"message", "7"}}}};
  const auto with_version = [&](int version) {
    Json all{{"version", version}};
    all.update(was);
    return all;
  };
  EXPECT_EQ(server.remove("/api/admin/policies/a").status, 200);
  Json entry = newest_change(server);
  EXPECT_EQ(entry["action"], "policies.delete");
  EXPECT_EQ(entry["before"], with_version(1));
  EXPECT_EQ(entry["after"].dump(), R"({"version":2,"removed":["a"]})");
  EXPECT_EQ(server.post("/api/admin/policies/rollback", R"({"version":1})").status, 200);
  EXPECT_EQ(newest_change(server)["after"].dump(), R"({"version":3,"added":["a"],"restored":1})");
  EXPECT_EQ(server.put("/api/admin/policies/a", R"({"id":"a","limit":"9/60s"})").status, 200);
  entry = newest_change(server);
  EXPECT_EQ(entry["before"], with_version(3));
  EXPECT_EQ(entry["after"].dump(), R"({"version":4,"changed":["a"],"text":"{\"id\":\"a\",\"limit\":\"9/60s\"}"})");
  EXPECT_EQ(server.remove("/api/admin/policies/a").status, 200);
  EXPECT_EQ(newest_change(server)["before"].dump(), R"({"version":4,"text":"{\"id\":\"a\",\"limit\":\"9/60s\"}"})");
}

TEST(PoliciesApi, ADocumentTooLongForTheAuditLogLeavesTheIdsThere) {
  ApiServer server;
  const std::string text = "policies: [{id: a, limit: 1/60s}]  # " + std::string(100'000, 'x');
  EXPECT_EQ(server.put("/api/admin/policies", text).status, 200);
  const Json after = newest_change(server)["after"];
  EXPECT_EQ(after["added"], Json::array({"a"}));
  EXPECT_GT(after["omitted_bytes"], 100'000);
}

TEST(PoliciesApi, ReloadOfBadFilesKeepsTheOldAndCountsIt) {
  const PolicyFile file(kFiles);
  ApiServer server(with(file));
  file.write("policies: [{id: q, limit: 0/60s}]");
  EXPECT_NE(server.policies->reload("signal").text(), "");
  EXPECT_EQ(ids(server).size(), 2U);
  EXPECT_EQ(server.policies->reloads().refused, 1U);
  file.write(kFiles);
  EXPECT_EQ(server.policies->reload("signal").version, 1);  // nothing new, so no version
}

TEST(PoliciesApi, ValidateChangesNothing) {
  ApiServer server;
  EXPECT_EQ(server.post("/api/admin/policies/validate", R"({"policies":[{"id":"c","limit":"3/60s"}]})").body,
            R"({"ok":true,"problems":[],"notes":[]})");
  const Json bad = server.post("/api/admin/policies/validate", R"({"text":"policies: [{id: c}]"})").json();
  EXPECT_EQ(bad["ok"], false);
  EXPECT_EQ(bad["problems"][0]["message"], "policy \"c\": policy must have limit, variants or repeat");
  EXPECT_EQ(server.get("/api/admin/policies").json()["version"], 1);
}

TEST(PoliciesApi, ExplainTellsWhatEachPolicyMakesOfACheck) {
  const PolicyFile file("policies:\n  - {id: a, limit: 5/60s}\n  - {id: b, match: {agents: [B]}, limit: 2/60s}\n");
  ApiServer server(with(file));
  const Json body = server.post("/api/admin/policies/explain", R"({"agent":"A","operation":"op"})").json();
  EXPECT_EQ(body["decision"]["allowed"], true);
  ASSERT_EQ(body["policies"].size(), 2U);
  EXPECT_EQ(
      body["policies"][0].dump(),
      R"({"id":"a","matches":true,"why_not":null,"key":"agent=A","enforced":true,"variant":null,"least_cost":null,"holds":true,"cells":)"
      R"([{"limit":"sliding_window 5/60s","capacity":5,"remaining":4,"reset_after_ms":60000,"fits":true}]})");
  EXPECT_EQ(body["policies"][1]["matches"], false);
  EXPECT_TRUE(body["policies"][1]["why_not"].is_string());
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").json()["remaining"], 4);
  EXPECT_EQ(server.post("/api/admin/policies/explain", "{}").status, 400);
}

TEST(PoliciesApi, WhatReadsADocumentIsAnsweredApartFromTheIoThread) {
  ApiServer server;
  const std::string document = R"({"policies":[{"id":"c","limit":"3/60s"}]})";
  EXPECT_EQ(server.post("/api/admin/policies/validate", document).status, 200);
  EXPECT_NE(server.later, nullptr);
  EXPECT_EQ(server.post("/api/admin/policies/explain", R"({"agent":"A","operation":"op"})").status, 200);
  EXPECT_NE(server.later, nullptr);
  EXPECT_EQ(server.put("/api/admin/policies", document).status, 200);
  EXPECT_NE(server.later, nullptr);
  EXPECT_EQ(server.put("/api/admin/emergency", R"({"reason":"r"})").status, 200);
  EXPECT_EQ(server.later, nullptr) << "the brake waits for none of them";
}

// Waits for what another thread answers.
Answer simulated(ApiServer& server, const std::string& body) {
  Answer answer = server.post("/api/admin/policies/simulate", body);
  if (!answer.waits) return answer;
  EXPECT_TRUE(server.later->wait());
  answer.status = server.last->status;
  answer.body = server.last->body;
  return answer;
}

TEST(PoliciesApi, SimulateReplaysATraceAgainstADocument) {
  const std::string trace = R"({"t":0,"agent":"A","operation":"op"})"
                            "\n"
                            R"({"t":1,"agent":"A","operation":"op"})"
                            "\n";
  ApiServer server;
  const Json request{{"text", "policies: [{id: one, limit: 1/60s}]"}, {"trace", trace}};
  const Answer answer = simulated(server, request.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["checks"], 2);
  EXPECT_EQ(answer.json()["denied"], 1);
  EXPECT_EQ(answer.json()["first_denial"]["policy_id"], "one");
}

TEST(PoliciesApi, SimulateReadsNoFiles) {
  ApiServer server;
  const Json request{{"trace", R"({"t":0,"event":"policies","file":"p.yaml"})"}};
  const Answer answer = simulated(server, request.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, R"({"error":"invalid_trace","message":"trace:1: events that read files are not for here; )"
                         R"(send the text"})");
}

TEST(PoliciesApi, SimulateRefusesWhatIsNoTraceOrDocument) {
  {
    ApiServer server;
    EXPECT_EQ(simulated(server, R"({"trace":"{\"t\":0,\"x\":1}"})").status, 400);
  }
  ApiServer server;
  EXPECT_EQ(simulated(server, R"({"trace":1})").status, 400);
  EXPECT_EQ(simulated(server, R"({"text":"policies: 1","trace":""})").json()["error"], "invalid_policies");
}

}  // namespace
}  // namespace headgate
