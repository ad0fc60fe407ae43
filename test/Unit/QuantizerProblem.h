//===- QuantizerProblem.h - A product to quantize ---------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_QUANTIZERPROBLEM_H
#define QWEN_TEST_UNIT_QUANTIZERPROBLEM_H

#include "FormTensors.h"
#include "NumericsRandom.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Quantizers/InputMoments.h"
#include "qwen/Weights/Owned.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace qwen::test {
/// Inputs and weights of a product. Neighbouring inputs correlate, and a few
/// are much larger than others, as those of real models.
struct Problem {
  static constexpr int64_t kTokens = 1500, kOutputs = 40;

  explicit Problem(int64_t k, int64_t outputs = kOutputs)
      : k(k), moments(k), inputs(static_cast<size_t>(kTokens * k)) {
    Random random(7);
    for (int64_t token = 0; token < kTokens; ++token) {
      float common = 0;
      for (int64_t i = 0; i < k; ++i) {
        common = 0.8f * common + random.value();
        inputs[token * k + i] =
            (common + random.value()) * (i % 50 == 3 ? 25.0f : 1.0f);
      }
    }
    // In two calls and by several threads.
    moments.add(inputs.data(), 700, k, 3);
    moments.add(inputs.data() + 700 * k, kTokens - 700, k, 2);
    auto owned =
        std::make_shared<Owned>("w", WeightShape{{outputs, k}}, Place::Memory);
    // About normal.
    std::vector<float> values(static_cast<size_t>(outputs * k));
    for (float &value : values)
      value = random.value() + random.value() + random.value();
    owned->set(0, outputs, values.data());
    weights = owned;
  }

  int64_t k;
  InputMoments moments;
  std::vector<float> inputs;
  WeightSourcePtr weights;
};

/// The panels of all integers of a source, as the pack step makes them, and the
/// values that a product reads there.
struct Packed {
  Packed(const WeightSource &source, WeightFormat format)
      : panels(static_cast<size_t>(
            packedBytes(format, source.shape().outputs(), source.shape().k()))),
        values(static_cast<size_t>(source.shape().values())) {
    const int64_t n = source.shape().outputs(), k = source.shape().k(),
                  bytes = panelBytes(format, k);
    std::vector<float> rows(static_cast<size_t>(kPanelOutputs * k));
    for (int64_t first = 0; first < n; first += kPanelOutputs) {
      const int64_t count = std::min(kPanelOutputs, n - first);
      uint8_t *panel = panels.data() + first / kPanelOutputs * bytes;
      const OutputSet all = (OutputSet{1} << count) - 1;
      source.read(first, count, rows.data());
      const float *outputs[kPanelOutputs] = {};
      for (int64_t i = 0; i < count; ++i)
        outputs[i] = rows.data() + i * k;
      numerics::packPanel(format, outputs, k, panel);
      if (source.kept(format, first, count) == all)
        error += source.keep(format, first, all, 0, panel);
    }
    auto *decode = numerics::reference<KernelOp::Embed>(kernelFormat(format));
    for (int64_t i = 0; i < n; ++i)
      decode(panels.data(), static_cast<int32_t>(i), k, values.data() + i * k);
  }

  std::vector<uint8_t> panels;
  std::vector<float> values;
  numerics::EncodeError error;
};
/// The sum of squares of the differences.
inline double squaredError(const std::vector<float> &a,
                           const std::vector<float> &b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

/// The sum of squared errors of the outputs of `problem` with the weights of
/// another source.
inline double outputError(const Problem &problem,
                          const std::vector<float> &values) {
  const std::vector<float> want = valuesOf(*problem.weights);
  const int64_t k = problem.k;
  double sum = 0;
  std::vector<double> wrong(static_cast<size_t>(k));
  for (int64_t output = 0; output < Problem::kOutputs; ++output) {
    for (int64_t i = 0; i < k; ++i)
      wrong[i] = double{values[output * k + i]} - want[output * k + i];
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j <= i; ++j)
        sum +=
            wrong[i] * wrong[j] * problem.moments.at(i, j) * (i == j ? 1 : 2);
  }
  return sum;
}
} // namespace qwen::test

#endif // QWEN_TEST_UNIT_QUANTIZERPROBLEM_H
