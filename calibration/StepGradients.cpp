//===- StepGradients.cpp - What gradients say to quantizers ---------------===//

#include "calibration/StepGradients.h"

#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qwen;

/// The part of a token's weight that its gradient decides; the rest is 1.
static constexpr double kTokenLambda = 0.5;

StepGradients::StepGradients(const CalibrationStep &step, size_t tokens,
                             unsigned threads, Place place)
    : threads(threads),
      squares(step.sublayer.inputs.size(), std::vector<double>(tokens)) {
  for (const auto &[i, input] : llvm::enumerate(step.sublayer.inputs))
    for (const std::string &weight : input.weights)
      inputOf[weight] = i;
  for (const StepInput &input : step.inputs)
    for (const StepFactor &factor : input.factors)
      for (const StepMatrix &matrix : factor.matrices)
        if (matrix.hasOutputFactor)
          moments.try_emplace(matrix.name, matrix.outputs, place);
}

void StepGradients::add(size_t first, size_t tokens, llvm::StringRef weight,
                        std::span<const float> gradient) {
  std::vector<double> &sums = squares[inputOf.lookup(weight)];
  const size_t outputs = gradient.size() / tokens;
  parallelFor(tokens, threads, [&](size_t i, unsigned) {
    double sum = 0;
    for (float value : gradient.subspan(i * outputs, outputs))
      sum += double{value} * value;
    sums[first + i] += sum;
  });
  if (const auto found = moments.find(weight); found != moments.end())
    found->second.add(gradient.data(), static_cast<int64_t>(tokens),
                      static_cast<int64_t>(outputs), threads);
}

static double totalOf(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

bool StepGradients::isFinite() const {
  return llvm::all_of(squares, [](const std::vector<double> &sums) {
    return std::isfinite(totalOf(sums));
  });
}

std::vector<float> StepGradients::tokenWeights(size_t i) const {
  const double mean =
      totalOf(squares[i]) / static_cast<double>(squares[i].size());
  std::vector<float> weights(squares[i].size(), 1.0f);
  if (mean > 0)
    std::ranges::transform(squares[i], weights.begin(), [&](double square) {
      return static_cast<float>(1 - kTokenLambda +
                                kTokenLambda * square / mean);
    });
  return weights;
}

const InputMoments *StepGradients::outputs(llvm::StringRef weight) const {
  const auto found = moments.find(weight);
  return found == moments.end() ? nullptr : &found->second;
}
