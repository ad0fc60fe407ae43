//===- TaskMetrics.cpp - The metrics of tasks -----------------------------===//
//
// The sums run in the order of the documents, as Python's sum of floats did
// before 3.12, so that results equal lm-eval's.
//
//===----------------------------------------------------------------------===//

#include "tasks/PythonRandom.h"
#include "tasks/Task.h"
#include "text/Unicode.h"

#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace qwen;
using namespace qwen::tasks;

//===----------------------------------------------------------------------===//
// Documents
//===----------------------------------------------------------------------===//

/// 1 if the gold choice has the greatest score; of equals, the first counts.
template <typename ScoreOf>
static Score isGoldBest(const Document &document,
                        std::span<const Likelihood> likelihoods,
                        const ScoreOf &scoreOf) {
  std::vector<double> scores;
  scores.reserve(likelihoods.size());
  for (size_t i = 0; i < likelihoods.size(); ++i)
    scores.push_back(scoreOf(i));
  const auto best =
      static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
  return {best == document.gold ? 1.0 : 0.0};
}

static Score isRight(const Document &document,
                     std::span<const Likelihood> likelihoods) {
  return isGoldBest(document, likelihoods,
                    [&](size_t i) { return likelihoods[i].sum; });
}

static Score isRightByLength(const Document &document,
                             std::span<const Likelihood> likelihoods) {
  return isGoldBest(document, likelihoods, [&](size_t i) {
    return likelihoods[i].sum /
           static_cast<double>(countCodePoints(document.choices[i]));
  });
}

static Score isGreedy(const Document &,
                      std::span<const Likelihood> likelihoods) {
  return {likelihoods.front().isGreedy ? 1.0 : 0.0};
}

static double sumOf(std::span<const Likelihood> likelihoods) {
  double sum = 0;
  for (const Likelihood &likelihood : likelihoods)
    sum += likelihood.sum;
  return sum;
}

static Score ofText(const Document &, std::span<const Likelihood> likelihoods) {
  return {sumOf(likelihoods)};
}

static Score ofWords(const Document &document,
                     std::span<const Likelihood> likelihoods) {
  return {sumOf(likelihoods), static_cast<double>(document.words)};
}

static Score ofBytes(const Document &document,
                     std::span<const Likelihood> likelihoods) {
  return {sumOf(likelihoods), static_cast<double>(document.bytes)};
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

/// The sum of values by the sum of weights.
static double mean(std::span<const Score> scores) {
  double sum = 0, weights = 0;
  for (const Score &score : scores) {
    sum += score.value;
    weights += score.weight;
  }
  return sum / weights;
}

static double perplexityOf(std::span<const Score> scores) {
  return std::exp(-mean(scores));
}

static double bitsOf(std::span<const Score> scores) {
  return -mean(scores) / std::numbers::ln2;
}

/// The sample's standard deviation; `count` is at least 2.
template <typename ValueOf>
static double deviation(size_t count, const ValueOf &valueOf) {
  const auto size = static_cast<double>(count);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i)
    sum += valueOf(i);
  for (size_t i = 0; i < count; ++i)
    squares += std::pow(valueOf(i) - sum / size, 2);
  return std::sqrt(squares / (size - 1));
}

static std::optional<double> errorOfMean(std::span<const Score> scores) {
  if (scores.size() < 2)
    return std::nullopt;
  return deviation(scores.size(), [&](size_t i) { return scores[i].value; }) /
         std::sqrt(static_cast<double>(scores.size()));
}

/// The standard deviation of the perplexities of 100,000 samples that are drawn
/// from the scores with replacement (bootstrap), in the order of lm-eval.
static std::optional<double> errorOfPerplexity(std::span<const Score> scores) {
  constexpr size_t kChunks = 100, kSamples = 1000;
  const auto size = static_cast<double>(scores.size());
  if (scores.size() < 2)
    return std::nullopt;
  std::vector<double> values(kChunks * kSamples);
  parallelFor(kChunks, machineThreads(), [&](size_t chunk, unsigned) {
    PythonRandom random(static_cast<uint32_t>(chunk));
    for (size_t i = 0; i < kSamples; ++i) {
      double sum = 0;
      for (size_t j = 0; j < scores.size(); ++j)
        sum += scores[static_cast<size_t>(random.real() * size)].value;
      values[chunk * kSamples + i] = std::exp(-(sum / size));
    }
  });
  return deviation(values.size(), [&](size_t i) { return values[i]; });
}

static std::optional<double> unknownError(std::span<const Score>) {
  return std::nullopt;
}

#define QWEN_METRIC(Id, Name, HigherIsBetter, OfDocument, Aggregate, Error)    \
  const Metric qwen::tasks::metric::Id = {Name, HigherIsBetter, OfDocument,    \
                                          Aggregate, Error};
#include "tasks/Metrics.def"
