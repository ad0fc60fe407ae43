//===- WeighedQuantizersTest.cpp - Tokens and outputs that count ----------===//

#include "QuantizerProblem.h"
#include "TempDir.h"

#include "qwen/Quantizers/Quantizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace qwen;
using namespace qwen::test;

/// The squared error of outputs that count by `slopes` [tokens][outputs]: the
/// trace of (slopes^T slopes) E (inputs^T inputs) E^T.
static double weighedError(const Problem &problem,
                           const std::vector<float> &slopes,
                           const std::vector<float> &values) {
  const std::vector<float> want = valuesOf(*problem.weights);
  const int64_t k = problem.k, outputs = std::ssize(values) / k,
                tokens = std::ssize(slopes) / outputs;
  double sum = 0;
  std::vector<double> turned(static_cast<size_t>(k));
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t j = 0; j < k; ++j) {
      turned[j] = 0;
      for (int64_t i = 0; i < outputs; ++i)
        turned[j] += slopes[token * outputs + i] *
                     double{values[i * k + j] - want[i * k + j]};
    }
    for (int64_t input = 0; input < Problem::kTokens; input += 8) {
      double product = 0;
      for (int64_t j = 0; j < k; ++j)
        product += turned[j] * problem.inputs[input * k + j];
      sum += product * product;
    }
  }
  return sum;
}

// Two of three slopes are nearly the same for all outputs.
TEST(Quantizers, OutputsMakeUpForEachOther) {
  // Two groups of outputs.
  constexpr int64_t kOutputs = 96, kRows = 40;
  const Problem problem(352, kOutputs);
  std::vector<float> slopes(kRows * kOutputs);
  for (int64_t i = 0; i < std::ssize(slopes); ++i)
    slopes[i] = (i / kOutputs % 3 == 0 ? 0.0f : 1.0f) +
                0.2f * problem.inputs[i % std::ssize(problem.inputs)];
  InputMoments moments(kOutputs);
  moments.add(slopes.data(), kRows, kOutputs, 1);
  const InputFactor inputs(problem.moments, kDamping, 32, 1),
      outputs(moments, kOutputDamping, kOutputs, 1);
  for (Quantizer quantizer : {Quantizer::Gptq, Quantizer::GptqDescent}) {
    const auto errorOf = [&](const QuantizerFactors &factors,
                             unsigned threads) {
      const Packed packed(*quantize(quantizer, problem.weights,
                                    WeightFormat::Q4_0, factors, {threads}),
                          WeightFormat::Q4_0);
      const double change =
          squaredError(packed.values, valuesOf(*problem.weights));
      EXPECT_NEAR(packed.error.errors, change, 1e-4 * change);
      return weighedError(problem, slopes, packed.values);
    };
    const double alone = errorOf({&inputs}, 1),
                 together = errorOf({&inputs, &outputs}, 1);
    EXPECT_LT(together, 0.8 * alone);
    for (unsigned threads : {2, 4})
      EXPECT_EQ(errorOf({&inputs, &outputs}, threads), together);
  }
}

// Nobody waits for outputs that are refused.
TEST(Quantizers, OutputsBehindRefusedOnesEnd) {
  const Problem problem(32);
  constexpr int64_t kOutputs = 160;
  InputMoments moments(kOutputs);
  const std::vector<float> slopes(kOutputs, 1.0f);
  moments.add(slopes.data(), 1, kOutputs, 1);
  const InputFactor inputs(problem.moments, kDamping, 32, 1),
      outputs(moments, kOutputDamping, kOutputs, 1);
  std::vector<float> values(kOutputs * 32, 1.0f);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  const auto weights =
      std::make_shared<Owned>("w", WeightShape{{kOutputs, 32}}, Place::Memory);
  weights->set(0, kOutputs, values.data());
  for (Quantizer quantizer : {Quantizer::Gptq, Quantizer::GptqDescent})
    EXPECT_EQ(test::messageOf([&] {
                quantize(quantizer, weights, WeightFormat::Q4_0,
                         {&inputs, &outputs}, {3});
              }),
              "w has a value that is not finite");
}

TEST(Quantizers, WeighTokens) {
  const Problem problem(32);
  InputMoments weighed(32), repeated(32);
  const std::vector<float> weights = {4, 1, 0};
  weighed.add(problem.inputs.data(), 3, 32, 1, weights.data());
  for (int64_t row : {0, 0, 0, 0, 1})
    repeated.add(problem.inputs.data() + row * 32, 1, 32, 1);
  for (int64_t i = 0; i < 32; ++i)
    EXPECT_NEAR(weighed.at(i, 3), repeated.at(i, 3),
                1e-5 * std::fabs(repeated.at(3, 3)));
}
