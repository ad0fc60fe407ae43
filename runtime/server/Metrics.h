//===- Metrics.h - What Prometheus reads ------------------------*- C++ -*-===//
//
// The metrics have the names of llama.cpp's and of vLLM's servers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_METRICS_H
#define QWEN_RUNTIME_SERVER_METRICS_H

#include "engine/Scheduler.h"

#include <array>
#include <atomic>
#include <string>

namespace qwen::server {

/// A histogram of seconds. All threads may use it.
class Histogram {
public:
  static constexpr std::array kBounds = {0.001, 0.005, 0.01, 0.025, 0.05,
                                         0.1,   0.25,  0.5,  1.0,   2.5,
                                         5.0,   10.0,  30.0, 60.0,  300.0};
  void record(double seconds);
  /// The lines of `name` with `label` (model_name="...").
  std::string text(const std::string &name, const std::string &label) const;

private:
  std::array<std::atomic<int64_t>, kBounds.size() + 1> counts = {};
  std::atomic<double> sum = 0;
};

/// All threads may use it.
struct Metrics {
  /// Counts a request that ended after `seconds`.
  void countEnd(const Ending &ending, double seconds);
  /// The text of /metrics.
  std::string text(const SchedulerCounts &counts, int64_t pages,
                   const std::string &model) const;

  /// The lines of all metrics that are one number.
  std::string values(const SchedulerCounts &counts, int64_t pages,
                     const std::string &label) const;

  Histogram firstToken, interToken, request;
  /// By EndReason.
  std::array<std::atomic<int64_t>, 5> ends = {};
  std::atomic<int64_t> promptTokens = 0, cachedTokens = 0, drawnTokens = 0;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_METRICS_H
