//===- Metrics.h - What Prometheus reads ------------------------*- C++ -*-===//
//
// The metrics have the names of llama.cpp's and of vLLM's servers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_METRICS_H
#define QWEN_RUNTIME_SERVER_METRICS_H

#include "engine/PageStore.h"
#include "engine/Scheduler.h"
#include "model/ModelPool.h"

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qwen::server {

// The bounds of vLLM's histograms, for which dashboards are made: seconds to
// the first token, between tokens and of a request; numbers of tokens.
inline constexpr auto kFirstTokenBounds = std::to_array<double>(
    {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560});
inline constexpr auto kTokenBounds =
    std::to_array<double>({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
                           0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80});
inline constexpr auto kRequestBounds =
    std::to_array<double>({0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                           30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680});
inline constexpr auto kLengthBounds =
    std::to_array<double>({1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000,
                           10000, 20000, 50000, 100000});

/// All threads may use it.
class Histogram {
public:
  /// `upperBounds` ascend and outlive the histogram.
  explicit Histogram(std::span<const double> upperBounds)
      : bounds(upperBounds), counts(upperBounds.size() + 1) {}

  void record(double value);
  /// The sum of all values.
  double total() const { return sum; }
  /// The lines of `name` with `label` (model_name="...").
  std::string text(const std::string &name, const std::string &label) const;

private:
  const std::span<const double> bounds;
  std::vector<std::atomic<int64_t>> counts;
  std::atomic<double> sum = 0;
};

/// Seconds from the arrival of a request; 0 if it did not come so far.
struct RequestTimes {
  /// When it got a sequence.
  double start = 0;
  double firstToken = 0;
  double end = 0;
};

/// All threads may use it.
struct Metrics {
  /// Counts a request that ended.
  void countEnd(const Ending &ending, const RequestTimes &times);
  /// The lines of /metrics that are about one model, whose pages `store`
  /// counts if there is a store.
  std::string text(const SchedulerCounts &counts, int64_t pages,
                   const std::optional<StoreCounts> &store,
                   const std::string &model) const;

  /// The lines of all metrics that are one number.
  std::string values(const SchedulerCounts &counts, int64_t pages,
                     const std::string &label) const;

  Histogram firstToken{kFirstTokenBounds}, interToken{kTokenBounds},
      perToken{kTokenBounds}, request{kRequestBounds}, queue{kRequestBounds},
      prefill{kRequestBounds}, decode{kRequestBounds},
      inference{kRequestBounds}, promptLength{kLengthBounds},
      answerLength{kLengthBounds};
  /// By EndReason.
  std::array<std::atomic<int64_t>, 5> ends = {};
  std::atomic<int64_t> promptTokens = 0, cachedTokens = 0, drawnTokens = 0;
  /// Drawn tokens after the first of their request.
  std::atomic<int64_t> laterTokens = 0;
  /// Sums of the schedulers that have ended. One thread at a time uses them.
  BatcherCounts past;
};

/// What a store has of all models.
std::string storeMetrics(const StoreSize &size);

/// The states of the models of a pool, with their names.
std::string
modelMetrics(std::span<const std::pair<std::string, ModelStatus>> models);

/// Texts of /metrics of several models as one: the lines of a metric stand
/// together, behind its help.
std::string joinMetrics(std::span<const std::string> texts);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_METRICS_H
