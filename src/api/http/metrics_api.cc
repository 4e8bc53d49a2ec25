// GET /metrics: Prometheus text, put together when it is asked for.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <utility>

#include "api/http/call.h"
#include "api/http/routes.h"
#include "headgate/version.h"
#include "service/quotas.h"

namespace headgate::api {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::size_t kMostPolicies = 1'000;  // with series of their own

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

class Page {
 public:
  MetricFamily& family(const char* name, const char* help, MetricType type) {
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return family;
  }
  static void add(MetricFamily& family, double value, Labels labels = {}) {
    ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    if (family.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  void gauge(const char* name, const char* help, double value) { add(family(name, help, MetricType::Gauge), value); }
  void counter(const char* name, const char* help, double value) {
    add(family(name, help, MetricType::Counter), value);
  }
  [[nodiscard]] std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

double real(std::uint64_t count) { return static_cast<double>(count); }

void add_checks(const service::Service& service, Page& page) {
  const auto totals = service.traffic->totals();
  MetricFamily& checks =
      page.family("headgate_checks_total", "Checks answered, by protocol and result.", MetricType::Counter);
  for (int i = 0; i < observe::kProtocolCount; ++i) {
    const std::string protocol = to_string(static_cast<observe::Protocol>(i));
    const auto& of = totals[static_cast<std::size_t>(i)];
    Page::add(checks, real(of.allowed), {{"protocol", protocol}, {"result", "allowed"}});
    Page::add(checks, real(of.denied), {{"protocol", protocol}, {"result", "denied"}});
    Page::add(checks, real(of.errors), {{"protocol", protocol}, {"result", "error"}});
  }
  const observe::Histogram latency = service.traffic->latency();
  MetricFamily& took =
      page.family("headgate_check_duration_seconds",
                  "Time the engine took for a check; under load one in 64 is measured.", MetricType::Histogram);
  ClientMetric& metric = took.metric.emplace_back();
  std::uint64_t below = 0;
  for (int i = 0; i + 1 < observe::Histogram::kBuckets; ++i) {
    below += latency.counts[static_cast<std::size_t>(i)];
    metric.histogram.bucket.push_back({below, static_cast<double>(std::uint64_t{128} << i) / 1e9});
  }
  metric.histogram.sample_count = latency.total;
  metric.histogram.sample_sum = latency.sum_seconds;
}

// Those in force first; what is gone or beyond the bound is not told apart any more.
void add_policies(const service::Service& service, Page& page) {
  MetricFamily& family = page.family("headgate_policy_checks_total",
                                     "Checks by policy and what came of them (id, or id/variant), for the first 1,000 "
                                     "policies.",
                                     MetricType::Counter);
  std::size_t told = 0;
  for (const auto& [name, counts] : service.engine->aftermath().counts()) {
    if (told++ == kMostPolicies) break;
    Page::add(family, real(counts.admitted), {{"policy", name}, {"result", "admitted"}});
    Page::add(family, real(counts.denied), {{"policy", name}, {"result", "denied"}});
    Page::add(family, real(counts.exceeded), {{"policy", name}, {"result", "exceeded"}});
    Page::add(family, real(counts.monitored), {{"policy", name}, {"result", "monitored"}});
  }
}

void add_engine(const service::Service& service, Page& page) {
  const LimiterTotals totals = service.engine->cells().totals();
  page.gauge("headgate_cells", "Cells held.", real(totals.cells));
  page.counter("headgate_cells_dropped_total", "Idle cells let go.", real(totals.dropped_idle));
  page.counter("headgate_cells_evicted_total", "Cells forgotten at the cap.", real(totals.evicted));
  page.counter("headgate_cells_refused_total", "New keys denied at the cap.", real(totals.refused));
  page.gauge("headgate_leases", "Holds that are open.", real(service.engine->holds().open()));
  page.gauge("headgate_waiting", "Checks that wait for room.", real(service.engine->queue().size()));
  const engine::Controls::Load load = service.engine->controls().load_state();
  page.gauge("headgate_emergency", "1 while the emergency throttle is on.",
             service.engine->controls().emergency().active ? 1.0 : 0.0);
  if (load.load) page.gauge("headgate_load", "System load, 0 to 1.", *load.load);
  page.gauge("headgate_factor", "What adaptive limits are multiplied by.", load.factor);
}

void add_store(const service::Service& service, const HttpApiOptions& options, Page& page) {
  if (!options.shared_store) return;
  const SharedStoreFacts facts = options.shared_store();
  page.gauge("headgate_store_up", "1 while the shared store answers.", facts.up ? 1.0 : 0.0);
  page.gauge("headgate_store_nodes", "Servers that share it, this one included.", real(facts.nodes));
  page.gauge("headgate_store_clock_offset_seconds", "Its clock less this server's.",
             static_cast<double>(facts.clock_offset.count()) / 1e9);
  page.gauge("headgate_store_unsent_changes", "Settings changed here that other servers are yet to hear of.",
             real(facts.unsent));
  page.counter("headgate_store_stand_ins_total", "Checks that this server judged alone because the store was away.",
               real(service.engine->cells().stand_ins()));
  page.counter("headgate_store_late_total", "Checks that the store did not answer in time though it was not away.",
               real(service.engine->cells().late_answers()));
  page.gauge("headgate_store_arrears", "Cells that are yet to be charged for what was admitted while it was away.",
             real(service.engine->cells().arrears().size()));
  page.counter("headgate_store_arrears_lost_total", "Charges not made up for: too many cells were owed already.",
               real(service.engine->cells().arrears().lost()));
  page.gauge("headgate_store_leased_units", "Units leased by this server and not used yet.",
             static_cast<double>(facts.leased_units));
  page.counter("headgate_store_leased_blocks_total", "Blocks of units that this server has leased.",
               real(facts.blocks));
  page.counter("headgate_store_leased_asks_total", "Checks of leased policies that had to ask the store.",
               real(facts.asked));
}

void add_quotas(const service::Service& service, Page& page) {
  if (service.quotas == nullptr) return;
  const service::Quotas::Counts& counts = service.quotas->counts();
  MetricFamily& checks = page.family("headgate_quota_checks_total", "Quota checks by result.", MetricType::Counter);
  Page::add(checks, real(counts.allowed), {{"result", "allowed"}});
  Page::add(checks, real(counts.denied), {{"result", "denied"}});
  page.counter("headgate_quota_throttled_total", "Commands admitted at less than full speed.", real(counts.throttled));
  page.counter("headgate_quota_would_refuse_total", "Commands past a quota that is only monitored.",
               real(counts.would_refuse));
  page.counter("headgate_executions_recorded_total", "Executions recorded.", real(counts.recorded));
  const service::Quotas::Line line = service.quotas->line(0);
  page.gauge("headgate_runs_waiting", "Commands that wait in line.", real(line.waiting_count));
  page.gauge("headgate_runs_running", "Commands known to run.", real(line.running_count));
  page.gauge("headgate_throttle_factor", "The pace at which commands are to run.", service.quotas->factor());
  const quota::LedgerFacts ledger = service.quotas->ledger().facts();
  page.counter("headgate_ledger_written_total", "Entries written to the ledger.", real(ledger.written));
  page.counter("headgate_ledger_commits_total", "Commits they took.", real(ledger.commits));
  page.counter("headgate_ledger_refused_total", "Entries not taken: too many were pending.", real(ledger.refused));
  page.counter("headgate_ledger_failed_total", "Entries that could not be written in time (durability: sync).",
               real(ledger.failed));
  page.counter("headgate_ledger_pruned_total", "Rows past their retention that were deleted.", real(ledger.pruned));
  page.gauge("headgate_ledger_pending", "Entries not written yet.", real(ledger.pending));
  page.gauge("headgate_ledger_behind_seconds", "Age of the oldest of them.",
             static_cast<double>(ledger.behind.count()) / 1e9);
  page.gauge("headgate_ledger_up", "1 while the ledger can be written.", ledger.problem.empty() ? 1.0 : 0.0);
}

void add_connections(const HttpApiOptions& options, Page& page) {
  if (!options.io_counts || options.listeners.empty()) return;
  struct Series {
    const char* name;
    const char* help;
    MetricType type;
    std::uint64_t net::IoCounts::*count;
  };
  static constexpr Series kSeries[] = {
      {"headgate_connections", "Connections that are open.", MetricType::Gauge, &net::IoCounts::open},
      {"headgate_connections_accepted_total", "Connections accepted.", MetricType::Counter, &net::IoCounts::accepted},
      {"headgate_connections_refused_total", "Connections closed at once: no place was left for them.",
       MetricType::Counter, &net::IoCounts::refused},
      {"headgate_connections_evicted_total", "Connections without a token closed in favour of newcomers.",
       MetricType::Counter, &net::IoCounts::evicted},
      {"headgate_connections_shed_total", "Connections closed because memory or buffers were short.",
       MetricType::Counter, &net::IoCounts::shed},
      {"headgate_connections_timed_out_total", "Connections closed because they were slow or idle.",
       MetricType::Counter, &net::IoCounts::timed_out},
      {"headgate_received_bytes_total", "Bytes read.", MetricType::Counter, &net::IoCounts::bytes_in},
      {"headgate_sent_bytes_total", "Bytes written.", MetricType::Counter, &net::IoCounts::bytes_out},
  };
  std::vector<std::pair<std::string, net::IoCounts>> counts;
  for (const std::string& listener : options.listeners) counts.emplace_back(listener, options.io_counts(listener));
  for (const Series& series : kSeries) {
    MetricFamily& family = page.family(series.name, series.help, series.type);
    for (const auto& [listener, of] : counts) Page::add(family, real(of.*series.count), {{"listener", listener}});
  }
}

void add_server(const Context& context, Page& page) {
  const service::Policies::Reloads reloads = context.policies.reloads();
  MetricFamily& family =
      page.family("headgate_reloads_total", "Policy documents put in force, or refused.", MetricType::Counter);
  Page::add(family, real(reloads.done), {{"result", "done"}});
  Page::add(family, real(reloads.refused), {{"result", "refused"}});
  if (const observe::Notices* notices = context.service.notices) {
    page.counter("headgate_notices_told_total", "Notices handed on.", real(notices->told()));
    page.counter("headgate_notices_dropped_total", "Notices that did not fit the queue.", real(notices->dropped()));
  }
  MetricFamily& build = page.family("headgate_build_info", "Always 1.", MetricType::Gauge);
  Page::add(build, 1, {{"version", HEADGATE_VERSION}});
}

void add_process(const HttpApiOptions& options, Page& page) {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t whole = 0;
  std::uint64_t resident = 0;
  if (statm >> whole >> resident) {
    page.gauge("process_resident_memory_bytes", "Resident memory.",
               real(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  }
  timespec cpu{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) {
    page.counter("process_cpu_seconds_total", "CPU time, user and system.",
                 static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9);
  }
  std::error_code error;
  std::size_t open = 0;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error)) {
    ++open;
  }
  if (open > 0) page.gauge("process_open_fds", "Open file descriptors.", real(open));
  page.gauge("process_start_time_seconds", "When the server started, in epoch seconds.",
             static_cast<double>(options.started.count()) / 1e9);
}

}  // namespace

void get_metrics(Call& call) {
  Page page;
  add_checks(call.service(), page);
  add_policies(call.service(), page);
  add_engine(call.service(), page);
  add_store(call.service(), call.context.options, page);
  add_quotas(call.service(), page);
  add_connections(call.context.options, page);
  add_server(call.context, page);
  add_process(call.context.options, page);
  const std::string text = page.text();
  net::HttpAnswer answer;
  answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
  answer.body = text;
  answer.headers = "Cache-Control: no-store\r\n";
  call.send(answer);
}

}  // namespace headgate::api
