// Tells floods of cheap HTTP/2 frames from use.
//
// Frames that ask for nothing (PRIORITY, WINDOW_UPDATE, PING, SETTINGS, empty DATA) are earned by those that do, as in
// Envoy. Streams that are made only to be reset cost the server work and their peer none, so they have a rate of their
// own.
#pragma once

#include <algorithm>
#include <chrono>

#include "net/grpc.h"

namespace headgate::net {

class H2Floods {
 public:
  explicit H2Floods(const GrpcLimits& limits) noexcept
      : most_resets_(limits.max_resets_per_second),
        most_frames_(limits.max_control_frames),
        resets_left_(most_resets_),
        frames_left_(most_frames_) {}

  void start(Nanos now) noexcept { refilled_at_ = earned_at_ = now; }
  void earn_by_stream() noexcept { earn(kEarnedByStream); }
  void earn_by_data() noexcept { earn(kEarnedByData); }  // each DATA frame that we send
  void count_reset(Nanos now) noexcept {
    resets_left_ = std::min(most_resets_, resets_left_ + seconds_since(refilled_at_, now) * most_resets_) - 1;
  }
  void count_control_frame(Nanos now) noexcept {
    const double since = seconds_since(earned_at_, now);
    if (frames_left_ < most_frames_) frames_left_ = std::min(most_frames_, frames_left_ + since * kEarnedByStream);
    --frames_left_;
  }
  // The peer has sent more than it may: the connection is to end.
  [[nodiscard]] bool flooded() const noexcept { return resets_left_ < 0 || frames_left_ < 0; }

 private:
  static constexpr double kEarnedByStream = 100;
  static constexpr double kEarnedByData = 10;

  void earn(double frames) noexcept { frames_left_ = std::min(frames_left_ + frames, kEarnedByStream * most_frames_); }
  [[nodiscard]] static double seconds_since(Nanos& last, Nanos now) noexcept {
    const double since = std::chrono::duration<double>(now - last).count();
    last = now;
    return since;
  }

  const double most_resets_;
  const double most_frames_;
  double resets_left_;
  double frames_left_;
  Nanos refilled_at_{0};
  Nanos earned_at_{0};
};

}  // namespace headgate::net
