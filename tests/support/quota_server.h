// The HTTP API with quotas: a ledger in a folder of its own, and a clock that is moved by hand.
#pragma once

#include <filesystem>

#include "service/quotas.h"
#include "support/api_server.h"

namespace headgate::test {

// Passes on to a real ledger, unless the test has it fail or hold back what it has to say.
class TestLedger final : public quota::Ledger {
 public:
  explicit TestLedger(std::unique_ptr<quota::Ledger> real) : real_(std::move(real)) {}
  void add(Entry entry, Done done) override {
    ++added;
    if (fails) return done(Error{ErrorCode::kIo, "the disk is full", true});
    real_->add(std::move(entry), std::move(done));
  }
  Result<std::vector<quota::Execution>> executions(const ExecutionQuery& query) override {
    ++read;
    return real_->executions(query);
  }
  Result<std::vector<quota::UsageRow>> usage(const UsageQuery& query) override {
    ++read;
    return real_->usage(query);
  }
  Result<void> flush() override { return real_->flush(); }
  quota::LedgerFacts facts() const override {
    quota::LedgerFacts facts = real_->facts();
    if (fails) facts.problem = "the disk is full";
    return facts;
  }

  bool fails = false;
  int added = 0;
  int read = 0;

 private:
  std::unique_ptr<quota::Ledger> real_;
};

class QuotaServer : public ApiServer {
 public:
  explicit QuotaServer(const service::QuotasOptions& options = {}, const std::string& folder = {},
                       quota::Durability durability = quota::Durability::kSync) {
    folder_ = folder.empty() ? testing::TempDir() + "quota-" + std::to_string(base::random_seed()) : folder;
    own_ = folder.empty();
    std::filesystem::create_directories(folder_);
    quota::LedgerOptions ledger_options;
    ledger_options.durability = durability;
    ledger_options.wall = [this] { return clock.wall(clock.now()); };
    auto opened = quota::Ledger::open_sqlite(folder_ + "/ledger.db", ledger_options);
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
    ledger = std::make_unique<TestLedger>(*std::move(opened));
    quotas = std::make_unique<service::Quotas>(service, *ledger, options);
    service.quotas = quotas.get();
  }
  ~QuotaServer() {
    quotas->stop();
    http.reset();
    ledger.reset();
    quotas.reset();
    if (own_) std::filesystem::remove_all(folder_);
  }

  // Answered at once or by another thread: what came.
  Answer settled(Answer answer) {
    if (!answer.waits) return answer;
    EXPECT_TRUE(later->wait());
    Answer came;
    came.status = last->status;
    came.content_type = last->content_type;
    came.body = last->body;
    came.headers = last->headers;
    return came;
  }
  Answer ask(const std::string& body) { return settled(post("/api/quotas/check", body)); }
  Json asked(const std::string& body) {
    const Answer answer = ask(body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  Json command(const std::string& user = "42", const std::string& type = "shell") {
    return asked(R"({"user": ")" + user + R"(", "type": ")" + type + R"("})");
  }
  Json status(const std::string& user = "42") {
    const Answer answer = get("/api/quotas/user/" + user);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }

  std::unique_ptr<service::Quotas> quotas;
  std::unique_ptr<TestLedger> ledger;

 private:
  std::string folder_;
  bool own_ = false;
};

}  // namespace headgate::test
