//===- Adam.cpp - Steps down a gradient -----------------------------------===//

#include "qwen/Gradients/Adam.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace qwen;

static constexpr double kMeanDecay = 0.9, kSquareDecay = 0.98;
/// What is added to the root of a mean square. Gradients of single scales are
/// tiny, so it only avoids a division by 0.
static constexpr float kLeastRoot = 1e-18f;

Adam::Adam(std::vector<float> given)
    : units(std::move(given)), sums(2 * units.size()) {}

void Adam::step(std::span<const float> gradient, float rate,
                std::span<float> numbers, unsigned threads) {
  ++steps;
  // The means start from 0, and so are too small by these parts.
  double meanPart = 1, squarePart = 1;
  for (int64_t i = 0; i < steps; ++i) {
    meanPart *= kMeanDecay;
    squarePart *= kSquareDecay;
  }
  const auto meanScale = static_cast<float>(1 / (1 - meanPart));
  const auto squareScale = static_cast<float>(1 / (1 - squarePart));
  constexpr auto kMean = static_cast<float>(kMeanDecay);
  constexpr auto kSquare = static_cast<float>(kSquareDecay);
  constexpr size_t kTogether = size_t{1} << 16;
  parallelFor((units.size() + kTogether - 1) / kTogether, threads,
              [&](size_t part, unsigned) {
                const size_t end =
                    std::min(units.size(), (part + 1) * kTogether);
                for (size_t i = part * kTogether; i < end; ++i) {
                  const float slope = gradient[i] * units[i];
                  float &mean = sums[i], &square = sums[units.size() + i];
                  mean = kMean * mean + (1 - kMean) * slope;
                  square = kSquare * square + (1 - kSquare) * slope * slope;
                  numbers[i] -= rate * (mean * meanScale) /
                                (std::sqrt(square * squareScale) + kLeastRoot) *
                                units[i];
                }
              });
}

float qwen::cosineRate(int64_t step, int64_t steps) {
  const double turn = static_cast<double>(step) / static_cast<double>(steps);
  return (1 +
          numerics::sinCos(static_cast<float>(turn * std::numbers::pi)).cos) /
         2;
}
