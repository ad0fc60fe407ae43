//===- QuantizersTest.cpp - What chooses the integers of weights ----------===//

#include "qwen/Quantizers/Quantizers.h"

#include "FormTensors.h"
#include "QuantizerProblem.h"
#include "TempDir.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Quantizers/ChannelScales.h"
#include "qwen/Quantizers/FindGrid.h"
#include "qwen/Weights/Sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

using namespace qwen;
using namespace qwen::test;

/// A matrix of two outputs that are ones but for the first value.
static WeightSourcePtr matrixWith(float value) {
  std::vector<float> values(64, 1.0f);
  values[0] = value;
  const auto matrix =
      std::make_shared<Owned>("w", WeightShape{{2, 32}}, Place::Memory);
  matrix->set(0, 2, values.data());
  return matrix;
}

namespace {
class QuantizersOf : public testing::TestWithParam<WeightFormat> {};
} // namespace

TEST(Quantizers, HaveNames) {
  EXPECT_EQ(parseQuantizer("rtn"), Quantizer::Rounding);
  EXPECT_EQ(parseQuantizer("search"), Quantizer::Search);
  EXPECT_EQ(parseQuantizer("gptq"), Quantizer::Gptq);
  EXPECT_FALSE(parseQuantizer("none"));
}

TEST(Quantizers, SumMomentsInOneOrder) {
  // The columns do not fill a tile.
  const Problem problem(352);
  InputMoments other(problem.k);
  other.add(problem.inputs.data(), 700, problem.k, 1);
  other.add(problem.inputs.data() + 700 * problem.k, Problem::kTokens - 700,
            problem.k, 1);
  EXPECT_EQ(problem.moments.tokens(), Problem::kTokens);
  for (int64_t i = 0; i < problem.k; ++i)
    for (int64_t j = 0; j < problem.k; ++j)
      ASSERT_EQ(problem.moments.at(i, j), other.at(i, j)) << i << ' ' << j;
  for (const auto &[i, j] :
       {std::pair{0, 0}, {200, 3}, {351, 350}, {17, 340}}) {
    double sum = 0;
    for (int64_t token = 0; token < Problem::kTokens; ++token)
      sum += double{problem.inputs[token * problem.k + i]} *
             problem.inputs[token * problem.k + j];
    EXPECT_NEAR(other.at(i, j), sum, 1e-4 * std::fabs(sum)) << i << ' ' << j;
  }
}

TEST(Quantizers, FactorMoments) {
  const Problem problem(352);
  const double damping = 0.05;
  const InputFactor factor(problem.moments, damping, 64, 3);
  ASSERT_EQ(factor.blocks().size(), 6u);
  std::vector<int64_t> columns;
  double mean = 0, last = std::numeric_limits<double>::infinity();
  for (int64_t first : factor.blocks()) {
    double sum = 0;
    for (int64_t i = first; i < std::min(first + 64, problem.k); ++i) {
      columns.push_back(i);
      sum += problem.moments.at(i, i);
    }
    EXPECT_LE(sum, last);
    last = sum;
    mean += sum / static_cast<double>(problem.k);
  }
  const auto at = [&](int64_t i, int64_t j) {
    return j < i ? 0.0f : factor.panel(j / 16)[i * 16 + j % 16];
  };
  for (int64_t i = 0; i < problem.k; i += 7)
    for (int64_t j = 0; j < problem.k; j += 5) {
      double product = 0;
      for (int64_t l = 0; l < problem.k; ++l)
        product += double{at(i, l)} * at(j, l);
      double want = problem.moments.at(columns[i], columns[j]);
      if (i == j)
        want += damping * mean;
      ASSERT_NEAR(product, want, 1e-4 * mean) << i << ' ' << j;
    }
}

TEST(Quantizers, DampMomentsOfOneInput) {
  InputMoments moments(64);
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = 1e3f * static_cast<float>(i + 1);
  moments.add(row.data(), 1, 64, 1);
  const InputFactor factor(moments, 1e-12, 64, 1);
  EXPECT_GT(factor.panel(0)[0], 0);
  EXPECT_GT(factor.panel(3)[63 * 16 + 15], 0);
}

TEST(Quantizers, RefuseMomentsThatAreNotFinite) {
  InputMoments moments(32);
  const std::vector<float> row(32, 1e30f);
  moments.add(row.data(), 1, 32, 1);
  EXPECT_NE(test::messageOf([&] {
              InputFactor(moments, kDamping, 32, 1);
            }).find("second moments of inputs are not finite"),
            std::string::npos);
}

TEST_P(QuantizersOf, SearchesScales) {
  const WeightFormat format = GetParam();
  // The last block of 128 or 256 is shorter.
  const Problem problem(352);
  const std::vector<float> want = valuesOf(*problem.weights);
  EXPECT_EQ(quantize(Quantizer::Rounding, problem.weights, format),
            problem.weights);
  const WeightSourcePtr searched =
      quantize(Quantizer::Search, problem.weights, format);
  const Packed rounded(*problem.weights, format), packed(*searched, format);
  const double error = squaredError(packed.values, want);
  EXPECT_LT(error, 0.99 * squaredError(rounded.values, want));
  EXPECT_NEAR(packed.error.errors, error, 1e-4 * error);
  EXPECT_EQ(searched->kept(WeightFormat::F32, 0, 1), 0u);
  EXPECT_EQ(valuesOf(*searched), want);
}

/// Squared errors, each times the number of its column.
static double weighedError(const std::vector<float> &values,
                           const std::vector<float> &want,
                           const std::vector<float> &columns) {
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double wrong = double{values[i]} - want[i];
    sum += wrong * wrong * columns[i % columns.size()];
  }
  return sum;
}

TEST_P(QuantizersOf, WeighsColumnsBySearch) {
  const WeightFormat format = GetParam();
  const Problem problem(352);
  const std::vector<float> want = valuesOf(*problem.weights);
  auto columns = std::make_shared<std::vector<float>>(problem.k, 0.1f);
  for (size_t i = 0; i < columns->size(); i += 8)
    (*columns)[i] = 30.0f;
  const auto packed = [&](const QuantizerFactors &factors) {
    return Packed(
               *quantize(Quantizer::Search, problem.weights, format, factors),
               format)
        .values;
  };
  const std::vector<float> plain = packed({});
  EXPECT_LT(weighedError(packed({.columns = columns}), want, *columns),
            0.95 * weighedError(plain, want, *columns));
  // Of two matrices, the second has columns of its own.
  const auto same = std::make_shared<std::vector<float>>(problem.k, 1.0f);
  auto both = std::make_shared<std::vector<float>>(*same);
  both->insert(both->end(), columns->begin(), columns->end());
  const std::vector<float> first = packed({.columns = same}),
                           second = packed({.columns = columns}),
                           halves = packed({.columns = both});
  const size_t half = halves.size() / 2;
  EXPECT_TRUE(std::ranges::equal(std::span(halves).first(half),
                                 std::span(first).first(half)));
  EXPECT_TRUE(std::ranges::equal(std::span(halves).subspan(half),
                                 std::span(second).subspan(half)));
}

TEST_P(QuantizersOf, MakeUpForErrors) {
  const WeightFormat format = GetParam();
  const Problem problem(352);
  std::vector<uint8_t> panels;
  double error = 0;
  for (unsigned threads : {1, 2, 4}) {
    const InputFactor factor(problem.moments, kDamping, weightBlock(format),
                             threads);
    const WeightSourcePtr result = quantize(
        Quantizer::Gptq, problem.weights, format, {&factor},
        {threads, threads == 2 ? Place::TemporaryFile : Place::Memory});
    EXPECT_EQ(result->name().line(), "w");
    EXPECT_EQ(result->form(), problem.weights->form());
    EXPECT_EQ(result->keptFormat(), format);
    const Packed packed(*result, format);
    EXPECT_EQ(packed.values, valuesOf(*result));
    const double change =
        squaredError(packed.values, valuesOf(*problem.weights));
    EXPECT_NEAR(packed.error.errors, change, 1e-4 * change);
    if (panels.empty())
      panels = packed.panels;
    EXPECT_EQ(panels, packed.panels) << threads;
    error = outputError(problem, packed.values);
  }
  panels.clear();
  for (unsigned threads : {1, 3}) {
    const InputFactor factor(problem.moments, kDamping, weightBlock(format),
                             threads);
    const Packed packed(*quantize(Quantizer::GptqDescent, problem.weights,
                                  format, {&factor}, {threads}),
                        format);
    if (panels.empty())
      panels = packed.panels;
    EXPECT_EQ(panels, packed.panels) << threads;
    EXPECT_LT(outputError(problem, packed.values), error);
    const double change =
        squaredError(packed.values, valuesOf(*problem.weights));
    EXPECT_NEAR(packed.error.errors, change, 1e-4 * change);
  }
  const Packed searched(*quantize(Quantizer::Search, problem.weights, format),
                        format);
  EXPECT_LT(error, 0.3 * outputError(problem, searched.values));
}

TEST_P(QuantizersOf, RefuseWhatNoScaleHolds) {
  const WeightFormat format = GetParam();
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, 32)));
  const auto errorOf = [&](float value) {
    const WeightSourcePtr searched =
        quantize(Quantizer::Search, matrixWith(value), format);
    return test::messageOf(
        [&] { searched->keep(format, 0, 3, 0, panel.data()); });
  };
  EXPECT_EQ(errorOf(std::numeric_limits<float>::quiet_NaN()),
            "w has a value that is not finite");
  EXPECT_EQ(
      errorOf(1e35f),
      "w has a block whose scale overflows f16; --weights f32 keeps it as "
      "it is");
  EXPECT_EQ(errorOf(0.0f), "");
}

// The experts of a layer are one source.
TEST(Quantizers, NameTheExpertThatTheyRefuse) {
  const Problem problem(32);
  std::vector<float> values(Problem::kOutputs * 32, 1.0f);
  const auto good =
      std::make_shared<Owned>("good", WeightShape{{20, 32}}, Place::Memory);
  const auto bad =
      std::make_shared<Owned>("bad", WeightShape{{20, 32}}, Place::Memory);
  good->set(0, 20, values.data());
  values[19 * 32 + 7] = std::numeric_limits<float>::quiet_NaN();
  bad->set(0, 20, values.data());
  const WeightSourcePtr experts = makeStacked({good, bad});
  const InputFactor factor(problem.moments, kDamping, 32, 1);
  for (Quantizer quantizer : {Quantizer::Search, Quantizer::Gptq})
    EXPECT_EQ(test::messageOf([&] {
                const WeightSourcePtr made =
                    quantize(quantizer, experts, WeightFormat::Q4_0, {&factor});
                std::vector<uint8_t> panel(
                    static_cast<size_t>(panelBytes(WeightFormat::Q4_0, 32)));
                made->keep(WeightFormat::Q4_0, 32, 255, 0, panel.data());
              }),
              "bad has a value that is not finite");
}

// Arm hosts choose the integers that x86 hosts choose.
TEST(Quantizers, ChooseTheSameBitsOnAllMachines) {
  const Problem problem(352);
  uint64_t hash = 0;
  for (WeightFormat format : {WeightFormat::Q4_0, WeightFormat::NL4_XS,
                              WeightFormat::Q4_K, WeightFormat::Q4_Z_32}) {
    const InputFactor factor(problem.moments, kDamping, weightBlock(format), 1);
    for (Quantizer quantizer : {Quantizer::Search, Quantizer::Gptq}) {
      const Packed packed(
          *quantize(quantizer, problem.weights, format, {&factor}), format);
      for (uint8_t byte : packed.panels)
        hash = (hash ^ byte) * 0x100000001b3;
    }
  }
  EXPECT_EQ(hash, 1316973311276569285u);
  const InputFactor factor(problem.moments, kDamping, 32, 1);
  uint64_t descent = 0;
  for (uint8_t byte : Packed(*quantize(Quantizer::GptqDescent, problem.weights,
                                       WeightFormat::Q4_0, {&factor}),
                             WeightFormat::Q4_0)
                          .panels)
    descent = (descent ^ byte) * 0x100000001b3;
  EXPECT_EQ(descent, 13116895335199612539u);
}

/// The sum of squared errors of products of q4_0 with rows in int8, both
/// scaled, and perhaps transformed.
static double scaledError(const Problem &problem, int64_t tokens,
                          const std::vector<float> &columns,
                          bool hadamard = false) {
  const int64_t k = problem.k;
  const std::vector<float> want = valuesOf(*problem.weights);
  Turn turn;
  turn.hadamard = hadamard;
  const Packed packed(
      *makeTurned(makeScaled(problem.weights, {columns, {}}), turn),
      WeightFormat::Q4_0);
  std::vector<float> row(static_cast<size_t>(k)), d(row.size()), from;
  std::vector<int8_t> q(row.size());
  std::vector<int32_t> sums(row.size());
  double sum = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    const float *inputs = problem.inputs.data() + token * k;
    for (int64_t i = 0; i < k; ++i)
      row[i] = inputs[i] / columns[i];
    if (hadamard) {
      from = row;
      numerics::hadamard(from.data(), k, row.data());
    }
    numerics::quantizeQ8(row.data(), k, q.data(), d.data(), sums.data());
    for (int64_t output = 0; output < Problem::kOutputs; ++output) {
      double wrong = 0;
      for (int64_t i = 0; i < k; ++i)
        wrong += double{packed.values[output * k + i]} * q[i] *
                     d[i / kActivationBlock] -
                 double{want[output * k + i]} * inputs[i];
      sum += wrong * wrong;
    }
  }
  return sum;
}

/// Products in q4_0 of the first 100 inputs.
static ScaledProducts productsOf(const Problem &problem,
                                 std::span<const float> rows) {
  ScaledProducts products = {{{problem.weights, WeightFormat::Q4_0}}, rows, {}};
  for (int32_t i = 0; i < problem.k; ++i)
    products.scaleOf.push_back(i);
  return products;
}

TEST(Quantizers, ScaleChannels) {
  Problem problem(352);
  // A channel without inputs.
  for (int64_t token = 0; token < Problem::kTokens; ++token)
    problem.inputs[token * problem.k + 5] = 0;
  ScaledProducts products = productsOf(
      problem, std::span(problem.inputs).first(size_t(100 * problem.k)));
  const std::vector<float> scales = searchChannelScales(products, 1);
  ASSERT_EQ(scales.size(), 352u);
  EXPECT_EQ(searchChannelScales(products, 3), scales);
  const std::vector<float> ones(352, 1.0f);
  EXPECT_LT(scaledError(problem, 100, scales),
            0.6 * scaledError(problem, 100, ones));
  EXPECT_GT(scales[3], scales[4]);

  // Heads of 44 share theirs.
  for (int32_t i = 0; i < 352; ++i)
    products.scaleOf[size_t(i)] = i % 44;
  EXPECT_LE(searchChannelScales(products, 1).size(), 44u);
  // What is even gains nothing.
  std::ranges::fill(problem.inputs, 0.0f);
  EXPECT_TRUE(searchChannelScales(products, 1).empty());
}

TEST(Quantizers, ScaleChannelsThatAreTurned) {
  const Problem problem(256);
  ScaledProducts products = productsOf(
      problem, std::span(problem.inputs).first(size_t(100 * problem.k)));
  const std::vector<float> plain = searchChannelScales(products, 1);
  products.turn.hadamard = true;
  const std::vector<float> turned = searchChannelScales(products, 2);
  // Plain rows and transformed rows need different scales.
  ASSERT_EQ(turned.size(), 256u);
  EXPECT_NE(turned, plain);
  EXPECT_LT(scaledError(problem, 100, turned, /*hadamard=*/true),
            scaledError(problem, 100, plain, /*hadamard=*/true));
  products.turn = {};
  products.turn.columns = 64;
  EXPECT_NE(searchChannelScales(products, 2), plain);
}

static std::vector<WeightFormat> quantizedFormats() {
  std::vector<WeightFormat> formats;
  std::ranges::copy_if(kWeightFormats, std::back_inserter(formats),
                       [](WeightFormat format) { return isQuantized(format); });
  return formats;
}

static float roundTo(StoredType type, float value) {
  return type == StoredType::BF16  ? bf16ToF32(f32ToBF16(value))
         : type == StoredType::F16 ? f16ToF32(f32ToF16(value))
                                   : value;
}

namespace {
/// Floats that a checkpoint stores as `type`.
class StoredFloats final : public ForwardingSource {
public:
  StoredFloats(WeightSourcePtr source, StoredType type)
      : ForwardingSource(std::move(source)), type(type) {}
  std::optional<StoredType> floatType() const override { return type; }

private:
  const StoredType type;
};

/// Integers of `format`, with scales of f16, rounded to `type`.
struct Trained {
  static constexpr int64_t kOutputs = 20, kK = 288;

  Trained(WeightFormat format, StoredType type) : integers(kOutputs * kK) {
    const CodingInfo &coding = codingOf(format);
    const int64_t block = weightBlock(format);
    std::vector<float> values(integers.size());
    float scale = 0, minimum = 0;
    int zero = 0;
    for (int64_t i = 0; i < kOutputs * kK; ++i) {
      if (i % kK % block == 0) {
        scale = f16ToF32(f32ToF16(0.01f + 0.01f * std::fabs(random.value())));
        zero = scalesOf(format).hasZero ? 3 : 0;
        if (scalesOf(format).hasMinimum())
          minimum = f16ToF32(f32ToF16(-7.3f * scale * random.value()));
      }
      const int least =
          coding.bits == 8 ? -127 : -static_cast<int>(coding.bias) - zero;
      const int most = coding.bits == 8 ? 127 : least + (1 << coding.bits) - 1;
      // Integers of a block have no common divisor. Every third block may have
      // the least integer.
      integers[i] = i % kK % block == 1
                        ? 1
                        : static_cast<int>(random.between(
                              least + (i / block % 3 != 0), most));
      values[i] =
          roundTo(type, static_cast<float>(integers[i]) * scale + minimum);
    }
    auto floats = std::make_shared<Owned>("w", WeightShape{{kOutputs, kK}},
                                          Place::Memory);
    floats->set(0, kOutputs, values.data());
    source = std::make_shared<StoredFloats>(floats, type);
    owned = floats;
  }

  Random random{3};
  std::vector<int> integers;
  std::shared_ptr<Owned> owned;
  WeightSourcePtr source;
};
} // namespace

TEST_P(QuantizersOf, FindGrids) {
  const WeightFormat format = GetParam();
  const bool isLinear =
      !codingOf(format).hasCodebook() && !scalesOf(format).hasSubBlocks();
  if (!isLinear)
    GTEST_SKIP() << "only integers of one scale a block are found";
  for (StoredType type : {StoredType::F32, StoredType::F16, StoredType::BF16}) {
    const Trained trained(format, type);
    const std::unique_ptr<Owned> found = findGrid(*trained.source, 2);
    ASSERT_TRUE(found) << storedTypeName(type);
    EXPECT_EQ(weightFormatName(found->keptFormat()), weightFormatName(format));
    const std::vector<float> values = valuesOf(*found),
                             stored = valuesOf(*trained.source);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(roundTo(type, values[i]), stored[i]) << "value " << i;
    if (scalesOf(format).hasMinimum())
      continue;
    // integer i * scale * integer j: the products are exact.
    const int64_t block = weightBlock(format);
    for (int64_t i = 0; i < Trained::kOutputs * Trained::kK; ++i) {
      const int64_t one =
          i - i % Trained::kK + i % Trained::kK / block * block + 1;
      ASSERT_EQ(double{values[i]}, double{values[one]} * trained.integers[i])
          << "value " << i << " in " << storedTypeName(type);
    }
    // A value off the grid.
    float *row = trained.owned->floats() + 5 * Trained::kK;
    row[8] = roundTo(type, 0.4142f * row[1]);
    EXPECT_FALSE(findGrid(*trained.source, 2));
  }
}

TEST(Quantizers, FindNoGridOfRandomFloats) {
  EXPECT_FALSE(findGrid(StoredFloats(Problem(64).weights, StoredType::F32)));
  EXPECT_FALSE(findGrid(*Problem(64).weights));
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizersOf,
                         testing::ValuesIn(quantizedFormats()),
                         [](const auto &info) {
                           return std::string(weightFormatName(info.param));
                         });

TEST(Quantizers, KeepIntegers) {
  const Problem problem(64);
  const auto owned = std::make_shared<Owned>("q", problem.weights->shape(),
                                             Place::Memory, WeightFormat::Q4_0);
  EXPECT_EQ(quantize(Quantizer::Search, owned, WeightFormat::Q4_0), owned);
  EXPECT_EQ(quantize(Quantizer::Search, owned, WeightFormat::F32), owned);
  EXPECT_EQ(
      test::messageOf([&] {
        quantize(Quantizer::Gptq, problem.weights, WeightFormat::Q4_0);
      }),
      "quantizer gptq needs moments of the inputs of w, which calibration "
      "gives");
  // Those of another format, too.
  const WeightSourcePtr other =
      quantize(Quantizer::Search, owned, WeightFormat::Q5_0);
  EXPECT_EQ(other->kept(WeightFormat::Q4_0, 0, 16), 0xFFFFu);
}
