#include "net/io.h"

#include <fmt/format.h>

#include <algorithm>

#include "net/sockets.h"
#include "net/worker.h"

namespace headgate::net {
namespace {

using TlsContexts = std::vector<std::shared_ptr<TlsContext>>;

Result<TlsContexts> read_tls(const std::vector<Listener>& listeners, const TlsFiles& files) {
  TlsContexts contexts(listeners.size());
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    if (!listeners[i].tls) continue;
    Result<std::shared_ptr<TlsContext>> context = TlsContext::read(files, listeners[i].alpn);
    if (!context) return std::move(context).error();
    contexts[i] = std::move(*context);
  }
  return contexts;
}

class EpollIo final : public Io {
 public:
  EpollIo(std::vector<Listener> listeners, const IoOptions& options) : common_(options) {
    common_.options.threads = std::max(options.threads, 1);
    common_.listeners = std::move(listeners);
  }
  ~EpollIo() override { stop(Nanos{0}); }
  EpollIo(const EpollIo&) = delete;
  EpollIo& operator=(const EpollIo&) = delete;

  Result<void> bind();
  [[nodiscard]] std::string address(std::string_view name) const override;
  void start() override;
  void stop(Nanos drain_within) override;
  [[nodiscard]] IoCounts counts(std::string_view listener) const override;
  Result<void> reload_tls() override;

 private:
  [[nodiscard]] bool all_gone() const noexcept {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->connections() == 0; });
  }

  IoCommon common_;
  std::vector<std::string> addresses_;
  std::vector<std::string> unlink_;
  std::vector<std::unique_ptr<Worker>> workers_;
  bool started_ = false;
  bool stopped_ = false;
};

Result<void> EpollIo::bind() {
  Result<TlsContexts> tls = read_tls(common_.listeners, common_.options.tls);
  if (!tls) return std::move(tls).error();
  common_.tls = std::move(*tls);
  for (int i = 0; i < common_.options.threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(common_, i));
    if (!workers_.back()->good()) return Error{ErrorCode::kIo, "no descriptors are left for an io thread", true};
  }
  for (std::size_t i = 0; i < common_.listeners.size(); ++i) {
    Result<Bound> bound = bind_listener(common_.listeners[i], common_.options.threads);
    if (!bound) return std::move(bound).error();
    addresses_.push_back(bound->address);
    if (!bound->unlink.empty()) unlink_.push_back(bound->unlink);
    for (std::size_t thread = 0; thread < workers_.size(); ++thread) {
      workers_[thread]->add_port(i, std::move(bound->sockets[thread]));
    }
  }
  return {};
}

std::string EpollIo::address(std::string_view name) const {
  for (std::size_t i = 0; i < common_.listeners.size(); ++i) {
    if (common_.listeners[i].name == name) return addresses_[i];
  }
  return {};
}

void EpollIo::start() {
  if (std::exchange(started_, true)) return;
  for (const auto& worker : workers_) worker->start();
}

void EpollIo::stop(Nanos drain_within) {
  if (std::exchange(stopped_, true)) return;
  if (started_) {
    for (const auto& worker : workers_) worker->begin_drain();
    {
      std::unique_lock lock(common_.idle_mutex);
      common_.idle.wait_for(lock, drain_within, [this] { return all_gone(); });
    }
    for (const auto& worker : workers_) worker->halt();
    for (const auto& worker : workers_) worker->join();
  }
  for (const auto& worker : workers_) worker->close_ports();
  for (const std::string& path : unlink_) ::unlink(path.c_str());
}

IoCounts EpollIo::counts(std::string_view listener) const {
  IoCounts sum;
  for (std::size_t i = 0; i < common_.listeners.size(); ++i) {
    if (common_.listeners[i].name != listener) continue;
    for (const auto& worker : workers_) {
      const Port::Counts& counts = worker->ports()[i]->counts;
      sum.accepted += counts.accepted.get();
      sum.refused += counts.refused.get();
      sum.evicted += counts.evicted.get();
      sum.timed_out += counts.timed_out.get();
      sum.shed += counts.shed.get();
      sum.open += counts.open.get();
      sum.bytes_in += counts.bytes_in.get();
      sum.bytes_out += counts.bytes_out.get();
    }
  }
  return sum;
}

Result<void> EpollIo::reload_tls() {
  Result<TlsContexts> tls = read_tls(common_.listeners, common_.options.tls);
  if (!tls) return std::move(tls).error();
  const std::lock_guard lock(common_.tls_mutex);
  common_.tls.swap(*tls);
  return {};
}

}  // namespace

Result<std::unique_ptr<Io>> Io::open(std::vector<Listener> listeners, const IoOptions& options) {
  auto io = std::make_unique<EpollIo>(std::move(listeners), options);
  Result<void> bound = io->bind();
  if (!bound) return std::move(bound).error();
  return std::unique_ptr<Io>(std::move(io));
}

}  // namespace headgate::net
