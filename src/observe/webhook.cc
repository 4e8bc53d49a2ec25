#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "base/utf8.h"
#include "observe/log.h"
#include "observe/notices.h"

namespace headgate::observe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kLongestBackOff = std::chrono::minutes{5};
constexpr std::size_t kMostAnswerBytes = 64 << 10;  // read and thrown away; a longer answer is cut off
constexpr std::size_t kMaxUrlBytes = 2'000;

struct EndEasy {
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};
struct EndMulti {
  void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
};
struct EndList {
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, EndList>;

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
  long status = 0;  // 0: no answer
  std::string why;
  bool aborted = false;  // since the sink is going away
  [[nodiscard]] bool delivered() const noexcept { return status >= 200 && status < 300; }
  [[nodiscard]] bool worth_another() const noexcept {
    return status == 0 || status == 408 || status == 429 || status >= 500;
  }
};

class Webhook final : public WebhookSink {
 public:
  Webhook(WebhookOptions options, std::unique_ptr<CURL, EndEasy> easy, std::unique_ptr<CURLM, EndMulti> multi)
      : options_(std::move(options)), easy_(std::move(easy)), multi_(std::move(multi)), process_(process_name()) {
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
    curl_multi_wakeup(multi_.get());
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
      if (stop_ || result.aborted) {
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
      changed_.wait_for(lock, options_.back_off(attempt), [&] { return stop_.load(); });
    }
  }

  [[nodiscard]] Headers headers_of(const Delivery& delivery) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto timestamp = std::chrono::duration_cast<seconds>(now).count();
    std::vector<std::string> lines{"Content-Type: application/json", "Expect:",
                                   // A kind is a word of ours; anything else could add headers.
                                   "X-Headgate-Event: " + delivery.kind, "X-Headgate-Delivery: " + delivery.id,
                                   fmt::format("X-Headgate-Timestamp: {}", timestamp)};
    if (!options_.secret.empty()) {
      lines.push_back("X-Headgate-Signature: " +
                      signature(options_.secret, fmt::format("{}.{}", timestamp, delivery.body)));
    }
    Headers list;
    for (const std::string& line : lines) {
      if (!base::is_plain_text(line)) continue;
      if (curl_slist* longer = curl_slist_append(list.get(), line.c_str()); longer != nullptr) {
        (void)list.release();
        list.reset(longer);
      }
    }
    return list;
  }

  static std::size_t discard(char* /*bytes*/, std::size_t size, std::size_t count, void* taken) noexcept {
    auto& so_far = *static_cast<std::size_t*>(taken);
    so_far += size * count;
    return so_far <= kMostAnswerBytes ? size * count : 0;
  }

  Attempt post(const Delivery& delivery) {
    CURL* easy = easy_.get();
    const Headers headers = headers_of(delivery);
    std::array<char, CURL_ERROR_SIZE> why{};
    std::size_t taken = 0;
    curl_easy_reset(easy);  // connections stay open
    curl_easy_setopt(easy, CURLOPT_URL, options_.url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     static_cast<long>(std::chrono::ceil<milliseconds>(options_.timeout).count()));
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "headgate");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, delivery.body.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(delivery.body.size()));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &discard);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &taken);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why.data());

    Attempt attempt;
    attempt.aborted = !perform(attempt);
    // An answer that was cut off for its length has a status all the same.
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &attempt.status);
    if (attempt.status == 0 && why[0] != '\0') attempt.why = why.data();
    if (attempt.status != 0) attempt.why = fmt::format("answered {}", attempt.status);
    return attempt;
  }

  // False: given up, since the sink is going away.
  bool perform(Attempt& attempt) {
    curl_multi_add_handle(multi_.get(), easy_.get());
    bool whole = false;
    while (!stop_ && !whole) {
      int running = 0;
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) break;
      if (running == 0) {
        whole = true;
      } else {
        curl_multi_poll(multi_.get(), nullptr, 0, 1'000, nullptr);
      }
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg == CURLMSG_DONE) attempt.why = curl_easy_strerror(message->data.result);
    }
    curl_multi_remove_handle(multi_.get(), easy_.get());
    return whole || !stop_;
  }

  WebhookOptions options_;
  std::unique_ptr<CURL, EndEasy> easy_;
  std::unique_ptr<CURLM, EndMulti> multi_;
  const std::string process_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delivery> queue_;
  bool busy_ = false;
  std::uint64_t delivered_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t dropped_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace

Result<std::shared_ptr<WebhookSink>> make_webhook_sink(const WebhookOptions& options) {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kStarted != CURLE_OK) {
    return Error{ErrorCode::kIo, fmt::format("webhook: libcurl cannot start: {}", curl_easy_strerror(kStarted))};
  }
  if (!options.url.starts_with("http://") && !options.url.starts_with("https://")) {
    return invalid("webhook.url must begin with http:// or https://");
  }
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
  std::unique_ptr<CURL, EndEasy> easy(curl_easy_init());
  std::unique_ptr<CURLM, EndMulti> multi(curl_multi_init());
  if (easy == nullptr || multi == nullptr) return Error{ErrorCode::kIo, "webhook: libcurl has no memory"};
  return Result<std::shared_ptr<WebhookSink>>(std::make_shared<Webhook>(options, std::move(easy), std::move(multi)));
}

}  // namespace headgate::observe
