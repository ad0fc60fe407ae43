//===- PruneLayers.cpp - Layers that a text can do without ----------------===//

#include "calibration/PruneLayers.h"

#include "calibration/TextRun.h"
#include "engine/CpuCount.h"
#include "engine/Logprobs.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qwen;

namespace {
using Stream = std::vector<float>;

/// A text through the layers of a model.
class LayerRun {
public:
  LayerRun(const QuantizeInput &input, const CalibrationText &given,
           int64_t count, const ProgressFn &progress);

  int64_t layers() const { return layerCount; }
  int64_t width() const { return hiddenSize; }
  /// The residual stream before the first layer.
  Stream embedded();
  /// Brings the stream through a layer.
  Stream run(int64_t layer, const Stream &before);
  /// The mean of -log p of the tokens that have one before them, in nats.
  double loss(const Stream &stream);
  /// Fills the figures of a report: two streams before the head.
  void compare(const Stream &whole, const Stream &pruned,
               PruningReport &report);

  /// The number of runs of layers, for progress.
  void expect(uint64_t runs) { total = runs; }

private:
  /// Calls receive(first, count, logits, stride) for each piece of the rows.
  template <typename Receive>
  void forLogits(const Stream &stream, const Receive &receive);
  /// The logits of `count` rows of a stream.
  const float *logitsOf(const Stream &stream, int64_t first, int64_t count);
  /// The loss of the token behind row `row`, whose logits have this logSumExp;
  /// 0 at the end of a window.
  double lossOf(size_t row, std::span<const float> logits, double sum) const;
  double meanLoss(const std::vector<double> &losses) const;

  std::vector<int32_t> ids;
  const int64_t window, layerCount, hiddenSize, vocabSize;
  SublayerChain chain;
  ThreadPool pool;
  TextRun text;
  const ProgressFn &progress;
  uint64_t done = 0, total = 0;
};
} // namespace

LayerRun::LayerRun(const QuantizeInput &input, const CalibrationText &given,
                   int64_t count, const ProgressFn &tell)
    : ids(given.ids.begin(),
          given.ids.begin() +
              std::min(std::ssize(given.ids),
                       kPruningTokens / given.window * given.window)),
      window(given.window), layerCount(modelFact(input.module, "layers")),
      hiddenSize(modelFact(input.module, "hidden_size")),
      vocabSize(modelFact(input.module, "vocab_size")),
      chain(divide(programsOf(input.module).front())),
      pool(usableThreads(static_cast<int>(machineThreads()))),
      text(input.module, input.weights, ids, window, pool), progress(tell) {
  if (count < 1 || count >= layerCount)
    throw Error(part::subject("--prune") + " removes " + part::found(count) +
                " layers when the model can lose " +
                part::needed("1 to " + std::to_string(layerCount - 1)));
  if ((std::ssize(chain.sublayers) - 1) % layerCount != 0)
    throw Error("the model cannot be divided into its " +
                std::to_string(layerCount) + " layers");
}

Stream LayerRun::embedded() {
  text.embed(chain.embedding);
  return {text.rows().begin(), text.rows().end()};
}

Stream LayerRun::run(int64_t layer, const Stream &before) {
  std::ranges::copy(before, text.rows().begin());
  const auto each = (std::ssize(chain.sublayers) - 1) / layerCount;
  for (int64_t i = layer * each; i < (layer + 1) * each; ++i)
    text.run(chain.sublayers[static_cast<size_t>(i)], [](const ReadRows &) {});
  if (progress)
    progress(++done, std::max(done, total));
  return {text.rows().begin(), text.rows().end()};
}

const float *LayerRun::logitsOf(const Stream &stream, int64_t first,
                                int64_t count) {
  return text
      .logits(
          chain.sublayers.back(),
          std::span(stream).subspan(static_cast<size_t>(first * hiddenSize),
                                    static_cast<size_t>(count * hiddenSize)))
      .data();
}

template <typename Receive>
void LayerRun::forLogits(const Stream &stream, const Receive &receive) {
  const auto rows = std::ssize(ids);
  for (int64_t first = 0; first < rows; first += TextRun::kHeadRows) {
    const int64_t count = std::min(TextRun::kHeadRows, rows - first);
    const float *logits = logitsOf(stream, first, count);
    receive(first, count, logits, text.headWidth());
  }
}

/// Calls compute(i, place) for `count` rows of logits, on all threads.
template <typename Compute>
static void forRows(int64_t count, int64_t stride, const Compute &compute) {
  parallelFor(static_cast<size_t>(count), machineThreads(),
              [&](size_t i, unsigned) {
                compute(i, static_cast<int64_t>(i) * stride);
              });
}

double LayerRun::lossOf(size_t row, std::span<const float> logits,
                        double sum) const {
  if ((row + 1) % static_cast<size_t>(window) == 0)
    return 0;
  return sum - logits[static_cast<size_t>(ids[row + 1])];
}

double LayerRun::meanLoss(const std::vector<double> &losses) const {
  const int64_t scored = std::ssize(ids) - std::ssize(ids) / window;
  return std::accumulate(losses.begin(), losses.end(), 0.0) /
         static_cast<double>(scored);
}

double LayerRun::loss(const Stream &stream) {
  std::vector<double> losses(ids.size());
  forLogits(stream, [&](int64_t first, int64_t count, const float *logits,
                        int64_t stride) {
    forRows(count, stride, [&](size_t i, int64_t at) {
      const std::span values(logits + at, static_cast<size_t>(vocabSize));
      const auto row = static_cast<size_t>(first) + i;
      losses[row] = lossOf(row, values, logSumExp(values));
    });
  });
  return meanLoss(losses);
}

void LayerRun::compare(const Stream &whole, const Stream &pruned,
                       PruningReport &report) {
  std::vector<double> before(ids.size()), after(ids.size()),
      divergences(ids.size());
  forLogits(whole, [&](int64_t first, int64_t count, const float *logits,
                       int64_t stride) {
    const std::vector<float> kept(logits, logits + count * stride);
    const float *others = logitsOf(pruned, first, count);
    forRows(count, stride, [&](size_t i, int64_t at) {
      const auto size = static_cast<size_t>(vocabSize);
      const std::span<const float> p(kept.data() + at, size),
          q(others + at, size);
      const double pSum = logSumExp(p), qSum = logSumExp(q);
      const auto row = static_cast<size_t>(first) + i;
      before[row] = lossOf(row, p, pSum);
      after[row] = lossOf(row, q, qSum);
      divergences[row] = klDivergence(p, pSum, q, qSum);
    });
  });
  report.perplexityBefore = std::exp(meanLoss(before));
  report.perplexityAfter = std::exp(meanLoss(after));
  report.divergence =
      std::accumulate(divergences.begin(), divergences.end(), 0.0) /
      static_cast<double>(divergences.size());
}

/// 1 minus the mean cosine of the rows of two streams.
static double influence(const Stream &before, const Stream &after,
                        int64_t width) {
  double cosines = 0;
  const auto rows = std::ssize(before) / width;
  for (int64_t row = 0; row < rows; ++row) {
    double product = 0, x = 0, y = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double a = before[static_cast<size_t>(i)];
      const double b = after[static_cast<size_t>(i)];
      product += a * b;
      x += a * a;
      y += b * b;
    }
    cosines += product / std::sqrt(std::max(x * y, 1e-300));
  }
  return 1 - cosines / static_cast<double>(rows);
}

/// The stream after the layers from `layer` on, without `removed`.
static Stream runFrom(LayerRun &run, int64_t layer, Stream stream,
                      const std::vector<int64_t> &removed) {
  for (; layer < run.layers(); ++layer)
    if (!std::ranges::count(removed, layer))
      stream = run.run(layer, stream);
  return stream;
}

PruningReport qwen::pruneByInfluence(const QuantizeInput &input,
                                     const CalibrationText &text, int64_t count,
                                     const ProgressFn &progress) {
  LayerRun run(input, text, count, progress);
  run.expect(static_cast<uint64_t>(2 * run.layers() - count));
  PruningReport report;
  const Stream first = run.embedded();
  Stream stream = first;
  for (int64_t layer = 0; layer < run.layers(); ++layer) {
    Stream next = run.run(layer, stream);
    report.scores.push_back(influence(stream, next, run.width()));
    stream = std::move(next);
  }
  std::vector<int64_t> order(static_cast<size_t>(run.layers()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t layer) {
    return std::pair(report.scores[static_cast<size_t>(layer)], layer);
  });
  report.layers.assign(order.begin(), order.begin() + count);
  std::ranges::sort(report.layers);
  run.compare(stream, runFrom(run, 0, first, report.layers), report);
  return report;
}

PruningReport qwen::pruneByLoss(const QuantizeInput &input,
                                const CalibrationText &text, int64_t count,
                                const ProgressFn &progress) {
  LayerRun run(input, text, count, progress);
  uint64_t runs = 0;
  for (int64_t left = run.layers(); left > run.layers() - count; --left)
    runs += static_cast<uint64_t>(left + left * (left - 1) / 2);
  run.expect(runs);
  PruningReport report;
  Stream whole, pruned;
  while (std::ssize(report.layers) < count) {
    // A candidate differs from what is left only behind its place.
    Stream stream = run.embedded(), best;
    int64_t chosen = -1;
    double least = INFINITY;
    for (int64_t layer = 0; layer < run.layers(); ++layer) {
      if (std::ranges::count(report.layers, layer))
        continue;
      Stream without = runFrom(run, layer + 1, stream, report.layers);
      if (const double loss = run.loss(without); loss < least) {
        least = loss;
        chosen = layer;
        best = std::move(without);
      }
      stream = run.run(layer, stream);
    }
    if (whole.empty())
      whole = std::move(stream);
    pruned = std::move(best);
    report.layers.push_back(chosen);
    report.scores.push_back(least);
  }
  run.compare(whole, pruned, report);
  std::ranges::sort(report.layers);
  return report;
}
