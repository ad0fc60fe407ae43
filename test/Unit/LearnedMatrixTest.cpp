//===- LearnedMatrixTest.cpp - Integers whose scales change ---------------===//

#include "QuantizerProblem.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Quantizers/LearnedMatrix.h"
#include "qwen/Quantizers/Quantizers.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
using namespace qwen::test;

namespace {
class LearnedMatrixOf : public testing::TestWithParam<WeightFormat> {
protected:
  /// Five outputs of a block of 256 and a shorter one.
  static constexpr int64_t kOutputs = 5, kK = 352;

  const WeightFormat format = GetParam();
  const Problem problem = Problem(kK, kOutputs);
  const WeightSourcePtr integers = [&] {
    const InputFactor factor(problem.moments, kDamping, weightBlock(format), 1);
    return quantize(Quantizer::Gptq, problem.weights, format, {&factor});
  }();
};

/// The sum of the values of a matrix, each times a slope.
double lossOf(const LearnedMatrix &matrix, const std::vector<float> &slopes) {
  const std::vector<float> values = valuesOf(matrix);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += double{values[i]} * slopes[i];
  return sum;
}
} // namespace

TEST_P(LearnedMatrixOf, HasTheValuesOfItsSource) {
  const LearnedMatrix matrix(integers, format, 2);
  EXPECT_TRUE(valuesOf(matrix) == valuesOf(*integers));
  EXPECT_TRUE(Packed(*matrix.withNumbers(Place::Memory), format).panels ==
              Packed(*integers, format).panels);
}

TEST_P(LearnedMatrixOf, RoundsNumbersToTheirType) {
  LearnedMatrix matrix(integers, format, 1);
  std::vector<float> numbers = matrix.ownNumbers();
  for (float &number : numbers)
    number *= 1.0003f;
  matrix.follow(numbers);
  const auto rounded = matrix.withNumbers(Place::Memory);
  const LearnedMatrix again(rounded, format, 1);
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(again.ownNumbers()[i], f16ToF32(f32ToF16(numbers[i])));
  // The bytes of integers stay: changed back, all are as before.
  LearnedMatrix back(rounded, format, 1);
  back.follow(matrix.ownNumbers());
  EXPECT_TRUE(Packed(*back.withNumbers(Place::Memory), format).panels ==
              Packed(*integers, format).panels);
}

TEST_P(LearnedMatrixOf, GradientsAreDifferences) {
  LearnedMatrix matrix(integers, format, 1);
  std::vector<float> slopes(static_cast<size_t>(kOutputs * kK));
  Random random(3);
  for (float &slope : slopes)
    slope = random.value();
  std::vector<float> numbers = matrix.ownNumbers();
  const std::vector<float> units = matrix.units();
  ASSERT_EQ(std::ssize(numbers), matrix.numbers());
  ASSERT_EQ(units.size(), numbers.size());
  matrix.follow(numbers);
  std::vector<float> gradient(numbers.size());
  for (int64_t output = 0; output < kOutputs; ++output)
    matrix.addGradient(output, slopes.data() + output * kK,
                       gradient.data() + output * matrix.outputNumbers());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float middle = numbers[i];
    EXPECT_GT(units[i], 0);
    // Values are linear in each number.
    numbers[i] = middle + 0.5f * units[i];
    const double above = lossOf(matrix, slopes);
    const double step = double{numbers[i]} - middle;
    numbers[i] = middle;
    EXPECT_NEAR(gradient[i] * step, above - lossOf(matrix, slopes),
                2e-4 * std::fabs(gradient[i] * step) + 2e-4)
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, LearnedMatrixOf,
    testing::ValuesIn(std::vector(std::begin(kWeightFormats) + 2,
                                  std::end(kWeightFormats))),
    [](const auto &info) { return std::string(weightFormatName(info.param)); });
