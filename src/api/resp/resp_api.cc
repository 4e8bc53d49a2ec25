#include "api/resp/resp_api.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cmath>

#include "api/http/answer.h"
#include "api/resp/resp_check.h"
#include "base/ascii.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "headgate/version.h"
#include "service/waiters.h"

namespace headgate::api {

namespace {

using engine::CheckDecision;
using net::RespContext;
using net::RespWriter;
using Args = std::span<const std::string_view>;

constexpr std::string_view kNoLongerGood = "NOAUTH The token has expired or was revoked.";

// Whole seconds as redis-cell gives them: rounded up once the fraction is a millisecond or more.
std::int64_t cell_seconds(Nanos time) noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000;
  constexpr std::int64_t kMillisecond = 1'000'000;
  return time.count() / kSecond + (time.count() % kSecond >= kMillisecond ? 1 : 0);
}

std::int64_t to_ms(Nanos time) noexcept {
  constexpr std::int64_t kMillisecond = 1'000'000;
  if (time == kNever) return -1;
  return (time.count() + kMillisecond - 1) / kMillisecond;
}

std::int64_t whole(double amount) noexcept {
  constexpr double kMost = 9e18;
  return std::isfinite(amount) ? static_cast<std::int64_t>(std::floor(std::min(amount, kMost))) : -1;
}

// -1: nothing counts what was asked, so there is no number.
std::int64_t remaining_of(const CheckDecision& decision) noexcept {
  const bool uncounted = decision.allowed && !(decision.limit > 0);
  return uncounted ? -1 : whole(decision.remaining);
}

// [allowed, remaining, retry_after_ms, reset_time, policy_id, action], and the lease where a hold was asked for.
void write_decision(const CheckDecision& decision, bool hold, RespWriter& reply) {
  if (decision.why == engine::Why::kInvalid) {
    reply.error(fmt::format("ERR {}", decision.problem));
    return;
  }
  const policy::Policy* policy = decision.denied_by();
  if (policy == nullptr && !decision.judged.empty()) policy = &decision.policy(decision.judged[0]);
  reply.array(hold ? 7 : 6);
  reply.integer(decision.allowed ? 1 : 0);
  reply.integer(remaining_of(decision));
  reply.integer(decision.allowed ? 0 : to_ms(decision.retry_after));
  reply.integer(decision.reset_time().count() / 1'000'000);
  reply.bulk(policy == nullptr ? std::string_view() : policy->id);
  reply.bulk(decision.action_text());
  if (!hold) return;
  if (decision.lease.empty()) {
    reply.null();
  } else {
    reply.bulk(decision.lease);
  }
}

class Commands final : public net::RespCommands {
 public:
  Commands(const service::Service& service, const net::Peer& peer)
      : service_(service),
        ip_(peer.ip),
        unsigned_(service.access->without_token(view_of(peer))),
        admission_(unsigned_),
        id_(++last_id) {}

  void command(Args args, RespWriter& reply, RespContext& context) override {
    assert(!args.empty());
    try {
      // What is asked most comes first.
      if (is_word(args[0], "CL.THROTTLE")) return entered(reply, context) ? throttle(args, reply, context) : void();
      if (is_word(args[0], "HG.CHECK")) return entered(reply, context) ? check(args, reply, context) : void();
      for (const Entry& entry : kEntries) {
        if (!is_word(args[0], entry.name)) continue;
        if (entry.guarded && !entered(reply, context)) return;
        const std::size_t given = args.size() - 1;
        if (given < entry.least || given > entry.most) return wrong_count(args[0], reply);
        return (this->*entry.run)(args, reply, context);
      }
      if (!entered(reply, context)) return;
      std::vector<std::string> names{"CL.THROTTLE", "HG.CHECK"};
      for (const Entry& entry : kEntries) names.emplace_back(entry.name);
      reply.error(fmt::format("ERR unknown command '{}'{}", base::shortened(args[0], 60),
                              base::did_you_mean(std::string(args[0].substr(0, 60)), names)));
    } catch (const std::bad_alloc&) {
      throw;  // closes the connection
    } catch (const std::exception& error) {
      reply.error(fmt::format("ERR {}", error.what()));
    }
  }

  [[nodiscard]] net::Standing standing() const noexcept override {
    return admission_.refusal ? net::Standing::kUnknown : standing_of(admission_.caller);
  }

  [[nodiscard]] std::string_view tick(Nanos now) noexcept override {
    return admission_.refusal || still_good(now) ? std::string_view() : kNoLongerGood;
  }

  void closed() noexcept override {
    for (auto& [waiting, answer] : std::exchange(waiting_, {})) {
      const bool over = service_.engine->queue().cancel(waiting) || answer.expired();
      if (over || !engine::Engine::in_flight(waiting) || service_.waiters == nullptr) continue;
      service_.waiters->add_gone(waiting, answer);
    }
  }

  void soon(Args args) noexcept override {
    if (args.size() > 1 && is_word(args[0], "CL.THROTTLE")) service_.engine->own_limits().expect_throttle(key(args));
  }

 private:
  static constexpr std::size_t kAny = 1024;
  struct Entry {
    std::string_view name;
    void (Commands::*run)(Args, RespWriter&, RespContext&);
    std::size_t least;  // arguments besides the name
    std::size_t most;
    bool guarded = true;  // only for those who may ask
  };
  static const std::array<Entry, 14> kEntries;

  static void wrong_count(std::string_view name, RespWriter& reply) {
    reply.error(fmt::format("ERR wrong number of arguments for '{}' command", base::shortened(name, 60)));
  }

  // Whether the credential of the connection is still valid; if not, the connection counts as signed out.
  // REQUIRES: it is signed in.
  [[nodiscard]] bool still_good(Nanos now) noexcept {
    if (service_.access->still_good(admission_.caller, now)) [[likely]]
      return true;
    admission_.refusal.emplace().code = "unauthorized";
    return false;
  }

  // Whether the connection may ask; tells it if not. One whose token is no longer good is closed.
  [[nodiscard]] bool entered(RespWriter& reply, RespContext& context) {
    if (!admission_.refusal) [[likely]] {
      if (still_good(context.now())) [[likely]]
        return true;
      reply.error(kNoLongerGood);
      context.quit();
      return false;
    }
    reply.error("NOAUTH Authentication required.");
    return false;
  }

  // A token that is bound to an agent has a key space of its own, so that it cannot use up the limits of others. All
  // other tokens share one key space; the cells that they make count by token.
  [[nodiscard]] engine::ThrottleKey key(Args args) const noexcept {
    const bool bound = admission_.caller.role == state::Role::kAgent;
    return {args[1], bound ? std::string_view(admission_.caller.agent) : std::string_view(), admission_.caller.owner};
  }

  void throttle(Args args, RespWriter& reply, RespContext& context) {
    if (args.size() < 5 || args.size() > 6) return wrong_count(args[0], reply);
    constexpr std::string_view kNames[] = {"max_burst", "count", "period", "quantity"};
    std::array<std::int64_t, 4> numbers{0, 0, 0, 1};
    for (std::size_t i = 2; i < args.size(); ++i) {
      if (to_integer(args[i], numbers[i - 2])) continue;
      return reply.error(
          fmt::format("ERR {} must be a whole number, got '{}'", kNames[i - 2], base::shortened(args[i], 60)));
    }
    constexpr std::int64_t kMostSeconds = 315'360'000;  // ten years
    if (numbers[2] < 1 || numbers[2] > kMostSeconds) {
      return reply.error(fmt::format("ERR period must be between 1 and {} seconds, got {}", kMostSeconds, numbers[2]));
    }
    const Gcra bucket{.max_burst = numbers[0], .count = numbers[1], .period = std::chrono::seconds{numbers[2]}};
    const auto later = [&]() -> engine::OwnLimits::Done {
      return [later = context.later(), now = context.now(), &service = service_](const Decision& decision) {
        later->send([&](RespWriter& writer) { write_throttled(service, decision, now, writer); });
      };
    };
    const auto decision =
        service_.engine->own_limits().throttle_or_wait(context.now(), key(args), bucket, numbers[3], later);
    if (!decision) return;
    if (!*decision) return reply.error(fmt::format("ERR {}", decision->error().message));
    write_throttled(service_, **decision, context.now(), reply);
  }

  static void write_throttled(const service::Service& service, const Decision& decision, Nanos now, RespWriter& reply) {
    const bool allowed = decision.allowed();
    observe::Answered answered;
    answered.protocol = observe::Protocol::kResp;
    answered.allowed = allowed;
    service.traffic->add(answered, service.clock->wall(now));
    reply.array(5);
    reply.integer(allowed ? 0 : 1);
    reply.integer(decision.limit);
    reply.integer(decision.remaining);
    reply.integer(allowed || decision.retry_after == kNever ? -1 : cell_seconds(decision.retry_after));
    reply.integer(cell_seconds(decision.reset_after));
  }

  void check(Args args, RespWriter& reply, RespContext& context) {
    thread_local RespCheckReader reader;
    if (!reader.read(args)) return reply.error(fmt::format("ERR {}", reader.problem()));
    Check check = reader.check();
    if (const auto refusal = service_.access->believe(admission_.caller, std::nullopt, check)) [[unlikely]]
      return reply.error(fmt::format("NOPERM {}", refusal->message));
    check.ip = ip_;
    CheckDecision decision;
    const bool hold = check.hold;
    std::weak_ptr<net::RespLater> promised;
    const engine::Account account{admission_.caller.owner};
    const engine::Request request{context.now(), check, account, engine::OnDenial::kQueue};
    const std::uint64_t waiting =
        service::ask(service_, observe::Protocol::kResp, request, decision, [&]() -> engine::Engine::Done {
          std::shared_ptr<net::RespLater> later = context.later();
          promised = later;
          auto send = [later = std::move(later), hold](const CheckDecision& answer) {
            if (answer.why == engine::Why::kRevoked) return later->refuse(kNoLongerGood);
            later->send([&](RespWriter& writer) { write_decision(answer, hold, writer); });
          };
          return {std::move(send), service_.access->validity_of(admission_.caller)};
        });
    if (waiting == 0) return write_decision(decision, hold, reply);
    // Twice as many as may be outstanding: so each is looked at a few times at most.
    if (waiting_.size() >= kMostListed)
      std::erase_if(waiting_, [](const Waiting& each) { return each.second.expired(); });
    waiting_.emplace_back(waiting, std::move(promised));
  }

  void settle(Args args, RespWriter& reply, RespContext&) {
    RespCheckReader costs;
    for (const std::string_view cost : args.subspan(2)) {
      if (!costs.add_cost(cost)) return reply.error(fmt::format("ERR {}", costs.problem()));
    }
    end_lease(service_.engine->holds().settle(args[1], admission_.caller.agent, costs.costs()), reply);
  }
  void release(Args args, RespWriter& reply, RespContext&) {
    end_lease(service_.engine->holds().release(args[1], admission_.caller.agent), reply);
  }
  void end_lease(const Result<engine::Settled>& settled, RespWriter& reply) const {
    if (!settled) return reply.error(fmt::format("ERR {}", settled.error().message));
    service_.wake();
    reply.integer(settled->again ? 0 : 1);
  }
  void renew(Args args, RespWriter& reply, RespContext&) {
    const Result<Nanos> until = service_.engine->holds().renew(args[1], admission_.caller.agent);
    if (!until) return reply.error(fmt::format("ERR {}", until.error().message));
    reply.integer(until->count() / 1'000'000);
  }

  void ping(Args args, RespWriter& reply, RespContext&) {
    if (args.size() > 1) return reply.bulk(args[1]);
    reply.simple("PONG");
  }
  void echo(Args args, RespWriter& reply, RespContext&) { reply.bulk(args[1]); }

  // False: it was not let in, and has been told so.
  bool sign_in(std::string_view secret, RespWriter& reply) {
    service::Admission admission = service_.access->by_token(secret, ip_);
    if (admission.refusal) {
      const service::Refusal& refusal = *admission.refusal;
      std::string text = fmt::format("{} {}", refusal.status == 403 ? "NOPERM" : "ERR", refusal.message);
      if (refusal.status == 401) text = "WRONGPASS invalid username-password pair or user is disabled.";
      reply.error(text);
      return false;
    }
    admission_ = std::move(admission);
    return true;
  }
  void auth(Args args, RespWriter& reply, RespContext&) {
    if (sign_in(args.back(), reply)) reply.simple("OK");
  }

  void hello(Args args, RespWriter& reply, RespContext&) {
    std::int64_t version = reply.version();
    if (args.size() > 1 && (!to_integer(args[1], version) || (version != 2 && version != 3))) {
      return reply.error("NOPROTO unsupported protocol version");
    }
    std::string name = name_;
    for (std::size_t i = 2; i < args.size();) {
      if (is_word(args[i], "AUTH") && args.size() - i > 2) {
        if (!sign_in(args[i + 2], reply)) return;
        i += 3;
      } else if (is_word(args[i], "SETNAME") && args.size() - i > 1) {
        name = args[i + 1];
        i += 2;
      } else {
        return reply.error(fmt::format("ERR Syntax error in HELLO option '{}'", base::shortened(args[i], 60)));
      }
    }
    if (admission_.refusal) {
      return reply.error(
          "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
          "<pass> option can be used to authenticate the client and select the RESP protocol version at the same time");
    }
    if (!set_name(name, reply)) return;
    reply.set_version(static_cast<int>(version));
    reply.map(7);
    reply.bulk("server");
    reply.bulk("headgate");
    reply.bulk("version");
    reply.bulk(HEADGATE_VERSION);
    reply.bulk("proto");
    reply.integer(version);
    reply.bulk("id");
    reply.integer(static_cast<std::int64_t>(id_));
    reply.bulk("mode");
    reply.bulk("standalone");
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
  }

  void select(Args args, RespWriter& reply, RespContext&) {
    std::int64_t index = 0;
    if (!to_integer(args[1], index)) return reply.error("ERR value is not an integer or out of range");
    if (index != 0) return reply.error("ERR DB index is out of range");
    reply.simple("OK");
  }

  [[nodiscard]] bool set_name(std::string_view name, RespWriter& reply) {
    constexpr std::size_t kLongest = 128;
    const bool plain =
        name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
    if (!plain) {
      reply.error(
          "ERR Client names are at most 128 characters and cannot contain spaces, newlines or special characters.");
      return false;
    }
    name_ = name;
    return true;
  }
  void client(Args args, RespWriter& reply, RespContext&) {
    const std::string_view what = args[1];
    if (is_word(what, "SETNAME") && args.size() == 3) {
      if (set_name(args[2], reply)) reply.simple("OK");
    } else if (is_word(what, "GETNAME") && args.size() == 2) {
      name_.empty() ? reply.null() : reply.bulk(name_);
    } else if (is_word(what, "ID") && args.size() == 2) {
      reply.integer(static_cast<std::int64_t>(id_));
    } else if (is_word(what, "INFO") && args.size() == 2) {
      reply.bulk(fmt::format("id={} addr={} name={} resp={} user={}", id_, ip_, name_, reply.version(),
                             admission_.caller.known ? admission_.caller.who : "default"));
    } else if ((is_word(what, "SETINFO") && args.size() == 4) || (is_word(what, "NO-EVICT") && args.size() == 3) ||
               (is_word(what, "NO-TOUCH") && args.size() == 3)) {
      reply.simple("OK");  // facts about the client that nothing here depends on
    } else {
      reply.error(
          fmt::format("ERR unknown subcommand or wrong number of arguments for '{}'. Known are SETNAME, GETNAME, "
                      "ID, INFO, SETINFO, NO-EVICT and NO-TOUCH.",
                      base::shortened(what, 60)));
    }
  }

  void describe(const Entry& entry, RespWriter& reply) const {
    const std::string name = base::to_lower(entry.name);
    reply.array(6);
    reply.bulk(name);
    const auto least = static_cast<std::int64_t>(entry.least) + 1;
    reply.integer(entry.least == entry.most ? least : -least);
    reply.array(1);
    reply.simple("fast");
    reply.integer(0);
    reply.integer(0);
    reply.integer(0);
  }
  // What clients read: name, arity (negative: at least), flags, and no keys, so that no client routes by them.
  void command_command(Args args, RespWriter& reply, RespContext&) {
    static constexpr Entry kMore[] = {{"CL.THROTTLE", nullptr, 4, 5}, {"HG.CHECK", nullptr, 2, kAny}};
    const std::size_t count = kEntries.size() + std::size(kMore);
    if (args.size() == 1 || (is_word(args[1], "INFO") && args.size() == 2)) {
      reply.array(count);
      for (const Entry& entry : kMore) describe(entry, reply);
      for (const Entry& entry : kEntries) describe(entry, reply);
    } else if (is_word(args[1], "COUNT")) {
      reply.integer(static_cast<std::int64_t>(count));
    } else if (is_word(args[1], "LIST")) {
      reply.array(count);
      for (const Entry& entry : kMore) reply.bulk(entry.name);
      for (const Entry& entry : kEntries) reply.bulk(entry.name);
    } else if (is_word(args[1], "DOCS")) {
      reply.map(0);
    } else if (is_word(args[1], "INFO")) {
      reply.array(args.size() - 2);
      for (const std::string_view name : args.subspan(2)) {
        const auto same = [&](const Entry& entry) {
          std::string upper(name);
          for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
          return entry.name == upper;
        };
        const Entry* found = std::find_if(std::begin(kMore), std::end(kMore), same);
        if (found == std::end(kMore)) {
          const auto other = std::find_if(kEntries.begin(), kEntries.end(), same);
          found = other == kEntries.end() ? nullptr : &*other;
        }
        found == nullptr ? reply.null() : describe(*found, reply);
      }
    } else {
      reply.error(
          fmt::format("ERR unknown subcommand '{}'. Try COUNT, DOCS, INFO or LIST.", base::shortened(args[1], 60)));
    }
  }

  void info(Args, RespWriter& reply, RespContext&) {
    const auto totals = service_.traffic->totals();
    std::uint64_t allowed = 0;
    std::uint64_t denied = 0;
    for (const auto& by : totals) {
      allowed += by.allowed;
      denied += by.denied;
    }
    const LimiterTotals cells = service_.engine->cells().totals();
    reply.bulk(
        fmt::format("# Server\r\nheadgate_version:{}\r\nprocess_id:{}\r\n\r\n# Stats\r\nchecks_allowed:{}\r\n"
                    "checks_denied:{}\r\n\r\n# Cells\r\ncells:{}\r\nevicted_cells:{}\r\nrefused_keys:{}\r\n"
                    "open_leases:{}\r\nwaiting_checks:{}\r\n",
                    HEADGATE_VERSION, ::getpid(), allowed, denied, cells.cells, cells.evicted, cells.refused,
                    service_.engine->holds().open(), service_.engine->queue().size()));
  }

  // Load generators ask how durable a Redis is before they begin; nothing else of Redis's settings exists here.
  void config(Args args, RespWriter& reply, RespContext&) {
    if (!is_word(args[1], "GET"))
      return reply.error("ERR CONFIG knows GET only; settings are in the server's own file");
    const bool save = args.size() > 2 && is_word(args[2], "SAVE");
    const bool append = args.size() > 2 && is_word(args[2], "APPENDONLY");
    reply.map(save || append ? 1 : 0);
    if (!save && !append) return;
    reply.bulk(save ? "save" : "appendonly");
    reply.bulk(save ? "" : "no");
  }

  void quit(Args, RespWriter& reply, RespContext& context) {
    reply.simple("OK");
    context.quit();
  }
  void reset(Args, RespWriter& reply, RespContext&) {
    admission_ = unsigned_;
    name_.clear();
    reply.set_version(2);
    reply.simple("RESET");
  }

  using Waiting = std::pair<std::uint64_t, std::weak_ptr<net::RespLater>>;  // to cancel it by; until it is answered
  static constexpr std::size_t kMostListed = 256;
  static inline std::atomic<std::uint64_t> last_id{0};
  const service::Service& service_;
  std::string ip_;
  const service::Admission unsigned_;  // what the connection is without a token
  service::Admission admission_;
  std::uint64_t id_;
  std::string name_;
  std::vector<Waiting> waiting_;  // in line, or asked for elsewhere; some may have been answered
};

const std::array<Commands::Entry, 14> Commands::kEntries{{
    {"PING", &Commands::ping, 0, 1},
    {"ECHO", &Commands::echo, 1, 1},
    {"AUTH", &Commands::auth, 1, 2, false},
    {"HELLO", &Commands::hello, 0, kAny, false},
    {"QUIT", &Commands::quit, 0, kAny, false},
    {"RESET", &Commands::reset, 0, 0, false},
    {"SELECT", &Commands::select, 1, 1},
    {"CLIENT", &Commands::client, 1, kAny},
    {"COMMAND", &Commands::command_command, 0, kAny},
    {"INFO", &Commands::info, 0, kAny},
    {"CONFIG", &Commands::config, 1, kAny},
    {"HG.SETTLE", &Commands::settle, 1, 1 + kMaxCosts},
    {"HG.RELEASE", &Commands::release, 1, 1},
    {"HG.RENEW", &Commands::renew, 1, 1},
}};

}  // namespace

std::unique_ptr<net::RespCommands> make_resp_commands(const service::Service& service, const net::Peer& peer) {
  return std::make_unique<Commands>(service, peer);
}

}  // namespace headgate::api
