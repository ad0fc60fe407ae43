//===- ImportanceLosses.cpp - Losses by an importance matrix --------------===//

#include "calibration/ImportanceLosses.h"

#include "qwen/Quantizers/MatrixSample.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>

using namespace qwen;

/// The experts of a matrix that stand for all, which are spread over it.
static constexpr size_t kImportanceExperts = 4;

/// Adds the losses of a matrix, or of an expert, times `scale`.
static void addLosses(const MatrixSample &sample,
                      const std::shared_ptr<const std::vector<float>> &columns,
                      int64_t k, std::span<const WeightFormat> formats,
                      double scale, unsigned threads,
                      std::vector<double> &losses) {
  const std::vector<double> outputs(static_cast<size_t>(sample.outputs()), 1.0);
  std::vector<double> weights(static_cast<size_t>(k), 1.0);
  if (columns)
    std::ranges::copy(*columns, weights.begin());
  const double all = sample.cost(sample.weights(), outputs, weights);
  if (!(all > 0))
    return;
  parallelFor(formats.size(), threads, [&](size_t i, unsigned) {
    losses[i] += scale / all *
                 sample.cost(sample.errors(formats[i], nullptr, columns),
                             outputs, weights);
  });
}

Sensitivities qwen::importanceLosses(const PlanInput &input,
                                     std::span<const WeightFormat> formats,
                                     unsigned threads) {
  Sensitivities result;
  result.withoutGradient = "an importance matrix has none";
  for (const auto &entry : input.model.formats) {
    const std::string &name = entry.first;
    const WeightSourcePtr source = input.model.source(name);
    const int64_t k = source->shape().k();
    const auto columns = input.importance(name);
    const size_t experts =
        columns ? columns->size() / static_cast<size_t>(k) : size_t{1};
    const int64_t outputs =
        source->shape().outputs() / static_cast<int64_t>(experts);
    const size_t count = std::min(experts, kImportanceExperts);
    std::vector<double> &losses = result.losses[name];
    losses.resize(formats.size());
    for (size_t i = 0; i < count; ++i) {
      const size_t expert = i * experts / count;
      const MatrixSample sample(makeOutputs(
          source,
          outputsFrom(static_cast<int64_t>(expert) * outputs, outputs)));
      std::shared_ptr<const std::vector<float>> own;
      if (columns)
        own = std::make_shared<std::vector<float>>(
            columns->begin() + static_cast<int64_t>(expert) * k,
            columns->begin() + static_cast<int64_t>(expert + 1) * k);
      addLosses(sample, own, k, formats, 1 / static_cast<double>(count),
                threads, losses);
    }
  }
  return result;
}
