//===- StepGradients.cpp - What gradients say to quantizers ---------------===//

#include "calibration/StepGradients.h"

#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

/// The part of a token's weight that its gradient decides; the rest is 1.
static constexpr double kTokenLambda = 0.5;

StepGradients::StepGradients(const CalibrationStep &step, size_t tokens,
                             unsigned threads, Place place)
    : threads(threads) {
  for (const auto &[i, input] : llvm::enumerate(step.sublayer.inputs)) {
    squares.emplace_back(tokens, input);
    for (const std::string &weight : input.weights)
      inputOf[weight] = i;
  }
  for (const StepInput &input : step.inputs)
    for (const StepFactor &factor : input.factors)
      for (const StepMatrix &matrix : factor.matrices)
        for (int64_t expert = 0;
             matrix.hasOutputFactor && expert < input.experts; ++expert)
          moments[matrix.name].emplace_back(matrix.outputs / input.experts,
                                            place);
}

// The engine sums in another order, so it may choose another expert than the
// backward pass where two have nearly equal logits. Then the token has no
// place.
std::optional<size_t> StepGradients::Squares::place(size_t token,
                                                    int64_t expert) const {
  for (size_t i = token * choices; i < (token + 1) * choices; ++i)
    if (experts[i] == expert || experts[i] == kNone)
      return i;
  return std::nullopt;
}

void StepGradients::add(size_t first, const ProductGradient &gradient) {
  Squares &own = squares[inputOf.lookup(gradient.weight)];
  const auto outputs = static_cast<size_t>(gradient.outputs);
  parallelFor(gradient.count(), threads, [&](size_t row, unsigned) {
    double sum = 0;
    for (float value : gradient.slopes.subspan(row * outputs, outputs))
      sum += double{value} * value;
    const size_t place =
        *own.place(first + gradient.token(row), gradient.expert);
    own.experts[place] = gradient.expert;
    own.sums[place] += sum;
  });
  if (const auto found = moments.find(gradient.weight); found != moments.end())
    found->second[static_cast<size_t>(gradient.expert)].add(
        gradient.slopes.data(), static_cast<int64_t>(gradient.count()),
        gradient.outputs, threads);
}

bool StepGradients::finish() {
  for (Squares &own : squares) {
    std::vector<size_t> counts(own.means.size());
    for (size_t i = 0; i < own.sums.size(); ++i)
      if (own.experts[i] != kNone) {
        own.means[static_cast<size_t>(own.experts[i])] += own.sums[i];
        ++counts[static_cast<size_t>(own.experts[i])];
      }
    for (const auto &[mean, count] : llvm::zip_equal(own.means, counts))
      mean /= static_cast<double>(std::max<size_t>(count, 1));
  }
  return llvm::all_of(squares, [](const Squares &own) {
    return llvm::all_of(own.means,
                        [](double mean) { return std::isfinite(mean); });
  });
}

std::vector<float> StepGradients::weights(const ReadRows &read) const {
  const Squares &own = squares[read.input];
  const double mean = own.means[read.expert];
  std::vector<float> result(read.tokens.size(), 1.0f);
  if (mean > 0)
    std::ranges::transform(read.tokens, result.begin(), [&](int64_t token) {
      const std::optional<size_t> place = own.place(
          static_cast<size_t>(token), static_cast<int64_t>(read.expert));
      return place ? static_cast<float>(1 - kTokenLambda +
                                        kTokenLambda * own.sums[*place] / mean)
                   : 1.0f;
    });
  return result;
}

const InputMoments *StepGradients::outputs(llvm::StringRef weight,
                                           size_t expert) const {
  const auto found = moments.find(weight);
  return found == moments.end() || found->second[expert].tokens() == 0
             ? nullptr
             : &found->second[expert];
}
