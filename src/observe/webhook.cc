#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "base/descriptor.h"
#include "base/utf8.h"
#include "net/http_client.h"
#include "observe/log.h"
#include "observe/notices.h"

namespace headgate::observe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kLongestBackOff = std::chrono::minutes{5};
constexpr std::size_t kMostAnswerBytes = 64 << 10;  // read and thrown away; a longer answer is cut off
constexpr std::size_t kMaxUrlBytes = 2'000;

std::string hex(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string signature(const std::string& secret, const std::string& signed_text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(signed_text.data()), signed_text.size(), mac.data(), &length);
  return "sha256=" + hex(mac.data(), length);
}

// Tells the deliveries of this process from those of others.
std::string process_name() {
  std::array<unsigned char, 8> random{};
  if (RAND_bytes(random.data(), random.size()) != 1) std::random_device{}();
  return hex(random.data(), random.size());
}

Nanos usual_back_off(int failures) {
  thread_local std::minstd_rand chance{std::random_device{}()};
  const Nanos whole = std::min<Nanos>(kLongestBackOff, seconds{1} * (std::int64_t{1} << std::min(failures - 1, 20)));
  return whole / 2 + Nanos{std::uniform_int_distribution<std::int64_t>(0, whole.count() / 2)(chance)};
}

// How one attempt went.
struct Attempt {
  int status = 0;  // 0: no answer
  std::string why;
  [[nodiscard]] bool delivered() const noexcept { return status >= 200 && status < 300; }
  [[nodiscard]] bool worth_another() const noexcept {
    return status == 0 || status == 408 || status == 429 || status >= 500;
  }
};

class Webhook final : public WebhookSink {
 public:
  Webhook(WebhookOptions options, net::HttpClient client)
      : options_(std::move(options)), client_(std::move(client)), process_(process_name()) {
    if (!options_.back_off) options_.back_off = usual_back_off;
    thread_ = std::thread([this] { run(); });
  }
  ~Webhook() override {
    {
      const std::lock_guard guard(mutex_);
      stop_ = true;
      dropped_ += queue_.size();
      queue_.clear();
    }
    changed_.notify_all();
    ::eventfd_write(stopping_.get(), 1);
    thread_.join();
  }
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  void on_notice(const Notice& notice) override {
    const bool wanted = options_.kinds.empty() ? !is_everyday(notice.kind)
                                               : std::find(options_.kinds.begin(), options_.kinds.end(), notice.kind) !=
                                                     options_.kinds.end();
    if (!wanted) return;
    {
      const std::lock_guard guard(mutex_);
      if (queue_.size() >= options_.queue) {
        queue_.pop_front();
        ++dropped_;
      }
      queue_.push_back({notice.kind, fmt::format("{}-{}", process_, notice.id), to_json(notice)});
    }
    changed_.notify_one();
  }

  WebhookCounts counts() const noexcept override {
    const std::lock_guard guard(mutex_);
    WebhookCounts counts;
    counts.delivered = delivered_;
    counts.failed = failed_;
    counts.dropped = dropped_;
    counts.queued = queue_.size() + (busy_ ? 1 : 0);
    return counts;
  }

 private:
  struct Delivery {
    std::string kind;
    std::string id;
    std::string body;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const Delivery delivery = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      deliver(delivery);
      lock.lock();
      busy_ = false;
    }
  }

  void deliver(const Delivery& delivery) {
    for (int attempt = 1;; ++attempt) {
      const Attempt result = post(delivery);
      std::unique_lock lock(mutex_);
      if (result.delivered()) {
        ++delivered_;
        return;
      }
      if (stop_) {
        ++dropped_;
        return;
      }
      if (attempt >= options_.attempts || !result.worth_another()) {
        ++failed_;
        lock.unlock();
        log(LogLevel::kWarn, "webhook not delivered",
            {{"kind", delivery.kind},
             {"delivery", delivery.id},
             {"attempts", std::int64_t{attempt}},
             {"status", std::int64_t{result.status}},
             {"why", result.why}});
        return;
      }
      changed_.wait_for(lock, options_.back_off(attempt), [&] { return stop_; });
    }
  }

  [[nodiscard]] std::vector<std::string> headers_of(const Delivery& delivery) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto timestamp = std::chrono::duration_cast<seconds>(now).count();
    std::vector<std::string> lines{"Accept: */*",
                                   "User-Agent: headgate",
                                   "Content-Type: application/json",
                                   "X-Headgate-Event: " + delivery.kind,
                                   "X-Headgate-Delivery: " + delivery.id,
                                   fmt::format("X-Headgate-Timestamp: {}", timestamp)};
    if (!options_.secret.empty()) {
      lines.push_back("X-Headgate-Signature: " +
                      signature(options_.secret, fmt::format("{}.{}", timestamp, delivery.body)));
    }
    // A line break in one of them would add headers.
    std::erase_if(lines, [](const std::string& line) { return !base::is_plain_text(line); });
    return lines;
  }

  Attempt post(const Delivery& delivery) {
    const net::HttpClient::Answer answer =
        client_.call({"POST", "", headers_of(delivery), delivery.body},
                     {options_.timeout, options_.timeout, kMostAnswerBytes}, {{stopping_.get()}, [] { return false; }});
    // An answer that exceeds its bound has a status all the same.
    if (answer.status != 0) return {answer.status, fmt::format("answered {}", answer.status)};
    return {0, answer.why};
  }

  WebhookOptions options_;
  net::HttpClient client_;
  const base::Descriptor stopping_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable: stop_ is set
  const std::string process_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delivery> queue_;
  bool busy_ = false;
  std::uint64_t delivered_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t dropped_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace

Result<std::shared_ptr<WebhookSink>> make_webhook_sink(const WebhookOptions& options) {
  Result<net::HttpUrl> url = net::parse_http_url(options.url);
  if (!url) return invalid("webhook.url " + url.error().message);
  if (options.url.size() > kMaxUrlBytes || !base::is_plain_text(options.url)) {
    return invalid(
        fmt::format("webhook.url must be at most {} bytes of text, got {}", kMaxUrlBytes, options.url.size()));
  }
  if (options.attempts < 1 || options.attempts > 20) {
    return invalid(fmt::format("webhook.attempts must be between 1 and 20, got {}", options.attempts));
  }
  if (options.timeout < milliseconds{1} || options.timeout > std::chrono::minutes{5}) {
    return invalid("webhook.timeout must be between 1ms and 5m");
  }
  if (options.queue < 1) return invalid("webhook.queue must be at least 1");
  Result<net::HttpClient> client = net::HttpClient::open({std::move(*url), "", ""});
  if (!client) return Error{ErrorCode::kIo, "webhook: " + client.error().message};
  return Result<std::shared_ptr<WebhookSink>>(std::make_shared<Webhook>(options, std::move(*client)));
}

}  // namespace headgate::observe
