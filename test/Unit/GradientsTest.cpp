//===- GradientsTest.cpp - Backward passes and differences ----------------===//
//
// Compares gradients with differences of the ops, which are computed here in
// double.
//
//===----------------------------------------------------------------------===//

#include "qwen/Gradients/Gradients.h"
#include "qwen/Gradients/Adam.h"
#include "qwen/Gradients/LinearAttention.h"
#include "qwen/Gradients/Products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

using namespace qwen;

namespace {
using Reals = std::vector<double>;

std::vector<float> randomFloats(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float &value : values) {
    state = state * 1664525u + 1013904223u;
    value =
        static_cast<float>(static_cast<int32_t>(state >> 8) % 20001 - 10000) *
        1e-4f;
  }
  return values;
}

/// Compares `gradient` with the differences of the sum of f(x)_i * slope_i by
/// the values of x.
void expectGradient(const std::function<Reals(const Reals &)> &f,
                    const std::vector<float> &x,
                    const std::vector<float> &slope,
                    const std::vector<float> &gradient) {
  const auto loss = [&](const Reals &values) {
    const Reals y = f(values);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += y[i] * slope[i];
    return sum;
  };
  double most = 0;
  for (float value : gradient)
    most = std::max(most, std::fabs(double{value}));
  EXPECT_GT(most, 0.01);
  ASSERT_EQ(gradient.size(), x.size());
  Reals at(x.begin(), x.end());
  for (size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    const double middle = at[i];
    at[i] = middle + kStep;
    const double above = loss(at);
    at[i] = middle - kStep;
    const double below = loss(at);
    at[i] = middle;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-5 * most) << i;
  }
}
} // namespace

TEST(Gradients, Norms) {
  const std::vector<float> x = randomFloats(40, 1),
                           weight = randomFloats(40, 2),
                           slope = randomFloats(40, 3);
  std::vector<float> gradient(40);
  gradients::rmsNorm(x, weight.data(), 0.1f, slope.data(), gradient.data());
  expectGradient(
      [&](const Reals &values) {
        double square = 0;
        for (double value : values)
          square += value * value;
        Reals y(values);
        for (size_t i = 0; i < y.size(); ++i)
          y[i] *= weight[i] / std::sqrt(square / 40 + double{0.1f});
        return y;
      },
      x, slope, gradient);
  std::vector<float> ofWeights(40);
  gradients::rmsNormWeights(x, 0.1f, slope.data(), ofWeights.data());
  expectGradient(
      [&](const Reals &values) {
        double square = 0;
        for (float value : x)
          square += double{value} * value;
        Reals y(values);
        for (size_t i = 0; i < y.size(); ++i)
          y[i] *= x[i] / std::sqrt(square / 40 + double{0.1f});
        return y;
      },
      weight, slope, ofWeights);
}

TEST(Gradients, Rotations) {
  const std::vector<float> x = randomFloats(16, 1), slope = randomFloats(16, 3),
                           cos = randomFloats(8, 4), sin = randomFloats(8, 5);
  std::vector<float> gradient(16);
  gradients::rope(cos.data(), sin.data(), 8, slope.data(), gradient.data());
  expectGradient(
      [&](const Reals &values) {
        Reals y(16);
        for (size_t i = 0; i < 8; ++i) {
          y[i] = values[i] * cos[i] - values[8 + i] * sin[i];
          y[8 + i] = values[8 + i] * cos[i] + values[i] * sin[i];
        }
        return y;
      },
      x, slope, gradient);
}

TEST(Gradients, Gates) {
  // The gate and then what it multiplies.
  const std::vector<float> x = randomFloats(64, 1), slope = randomFloats(32, 3);
  std::vector<float> gradient(64);
  gradients::swiGlu(std::span(x).first(32), x.data() + 32, slope.data(),
                    gradient.data(), gradient.data() + 32);
  expectGradient(
      [&](const Reals &values) {
        Reals y(32);
        for (size_t i = 0; i < 32; ++i)
          y[i] = values[i] / (1 + std::exp(-values[i])) * values[32 + i];
        return y;
      },
      x, slope, gradient);
}

TEST(Gradients, GatesOfAttention) {
  // What the gate multiplies, and then the gate.
  const std::vector<float> x = randomFloats(64, 1), slope = randomFloats(32, 3);
  std::vector<float> gradient(64);
  gradients::gate(std::span(x).first(32), x.data() + 32, slope.data(),
                  gradient.data(), gradient.data() + 32);
  expectGradient(
      [&](const Reals &values) {
        Reals y(32);
        for (size_t i = 0; i < 32; ++i)
          y[i] = values[i] / (1 + std::exp(-values[32 + i]));
        return y;
      },
      x, slope, gradient);
}

// Weights of four of nine experts, the only ones that the loss depends on.
TEST(Gradients, ChoicesOfExperts) {
  const std::vector<float> logits = randomFloats(9, 1),
                           slope = randomFloats(4, 3);
  const std::vector<int32_t> ids = {0, 3, 4, 8};
  for (bool normalized : {false, true}) {
    std::vector<float> gradient(9);
    gradients::route(logits, ids, normalized, slope.data(), gradient.data());
    expectGradient(
        [&](const Reals &values) {
          double sum = 0;
          for (size_t i = 0; i < values.size(); ++i)
            if (!normalized || std::ranges::count(ids, i) != 0)
              sum += std::exp(values[i]);
          Reals y;
          for (int32_t id : ids)
            y.push_back(std::exp(values[static_cast<size_t>(id)]) / sum);
          return y;
        },
        logits, slope, gradient);
  }
}

TEST(Gradients, Convolutions) {
  // More tokens than taps, and rows that are wider than the channels.
  constexpr int64_t kTokens = 7, kChannels = 5, kStride = 6;
  const std::vector<float> x = randomFloats(kTokens * kStride, 1),
                           slope = randomFloats(kTokens * kStride, 3),
                           weights = randomFloats(4 * kChannels, 2);
  std::vector<float> gradient(x.size()), result(x.size());
  gradients::ShortConvolution convolution(weights.data(), kTokens, kChannels);
  convolution.add({x.data(), kStride}, {slope.data(), kStride},
                  {gradient.data(), kStride});
  const auto f = [&](const Reals &values) {
    Reals y(values.size());
    for (int64_t token = 0; token < kTokens; ++token)
      for (int64_t i = 0; i < kChannels; ++i) {
        double sum = 0;
        for (int64_t j = std::max<int64_t>(0, 3 - token); j < 4; ++j)
          sum += weights[static_cast<size_t>(4 * i + j)] *
                 values[static_cast<size_t>((token - 3 + j) * kStride + i)];
        y[static_cast<size_t>(token * kStride + i)] =
            sum / (1 + std::exp(-sum));
      }
    return y;
  };
  expectGradient(f, x, slope, gradient);
  convolution.run({x.data(), kStride}, {result.data(), kStride});
  const Reals want = f(Reals(x.begin(), x.end()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(result[i], want[i], 1e-6) << i;
}

TEST(Gradients, DecaysAndStrengths) {
  // a and then b; decays and then strengths.
  const std::vector<float> x = randomFloats(16, 1), slope = randomFloats(16, 3),
                           bias = randomFloats(8, 4);
  std::vector<float> rate = randomFloats(8, 2), gradient(16);
  for (float &value : rate)
    value = 1.5f + value;
  gradients::deltaGates(std::span(x).first(8), x.data() + 8, rate.data(),
                        bias.data(), slope.data(), slope.data() + 8,
                        gradient.data(), gradient.data() + 8);
  expectGradient(
      [&](const Reals &values) {
        Reals y(16);
        for (size_t i = 0; i < 8; ++i) {
          y[i] = std::exp(-rate[i] * std::log1p(std::exp(values[i] + bias[i])));
          y[8 + i] = 1 / (1 + std::exp(-values[8 + i]));
        }
        return y;
      },
      x, slope, gradient);
}

namespace {
/// A head of the gated delta rule, in double. The inputs of all tokens are one
/// after another: q, k, v, decays, strengths.
struct DeltaRuleOfTest {
  // More tokens than are kept at a time, and a row that fills no lanes.
  static constexpr size_t kTokens = 37, kKeys = 4, kValues = 3;
  static constexpr size_t kRow = 2 * kKeys + kValues + 2;

  static Reals run(const Reals &x) {
    Reals y;
    double state[kKeys][kValues] = {};
    for (size_t token = 0; token < kTokens; ++token) {
      const double *row = x.data() + token * kRow;
      Reals q = normed(row), k = normed(row + kKeys);
      const double *v = row + 2 * kKeys;
      const double decay = v[kValues], beta = v[kValues + 1];
      for (size_t j = 0; j < kValues; ++j) {
        double old = 0, result = 0;
        for (size_t i = 0; i < kKeys; ++i)
          old += decay * state[i][j] * k[i];
        for (size_t i = 0; i < kKeys; ++i) {
          state[i][j] = decay * state[i][j] + k[i] * beta * (v[j] - old);
          result += q[i] * state[i][j] / std::sqrt(double{kKeys});
        }
        y.push_back(result);
      }
    }
    return y;
  }

private:
  static Reals normed(const double *x) {
    double square = double{1e-6f};
    for (size_t i = 0; i < kKeys; ++i)
      square += x[i] * x[i];
    Reals y(x, x + kKeys);
    for (double &value : y)
      value /= std::sqrt(square);
    return y;
  }
};
} // namespace

TEST(Gradients, DeltaRule) {
  using Rule = DeltaRuleOfTest;
  constexpr size_t kValuesAt = 2 * Rule::kKeys,
                   kGatesAt = kValuesAt + Rule::kValues;
  std::vector<float> x = randomFloats(Rule::kTokens * Rule::kRow, 1);
  // Decays and strengths lie between 0 and 1.
  for (size_t i = 0; i < x.size(); ++i)
    if (i % Rule::kRow >= kGatesAt)
      x[i] = 0.7f + 0.25f * x[i];
  const std::vector<float> slope =
      randomFloats(Rule::kTokens * Rule::kValues, 3);
  std::vector<float> gradient(x.size()), result(slope.size());
  const auto at = [](auto *values, size_t first) {
    return gradients::HeadRows{values + first, int64_t{Rule::kRow}};
  };
  gradients::DeltaRule rule(Rule::kTokens, Rule::kKeys, Rule::kValues);
  const gradients::DeltaRule::Inputs inputs = {
      at(std::as_const(x).data(), 0), at(std::as_const(x).data(), Rule::kKeys),
      at(std::as_const(x).data(), kValuesAt),
      at(std::as_const(x).data(), kGatesAt),
      at(std::as_const(x).data(), kGatesAt + 1)};
  const auto addTo = [&](std::vector<float> &to) {
    rule.add(inputs, {slope.data(), Rule::kValues},
             {at(to.data(), 0), at(to.data(), Rule::kKeys),
              at(to.data(), kValuesAt), at(to.data(), kGatesAt),
              at(to.data(), kGatesAt + 1)});
  };
  addTo(gradient);
  expectGradient(Rule::run, x, slope, gradient);
  // Adds to what is there, and forgets what it has seen.
  std::vector<float> twice = gradient;
  addTo(twice);
  for (size_t i = 0; i < gradient.size(); ++i)
    EXPECT_EQ(twice[i], 2 * gradient[i]) << i;
  rule.run(inputs, {result.data(), Rule::kValues});
  const Reals want = Rule::run(Reals(x.begin(), x.end()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(result[i], want[i], 1e-6) << i;
}

TEST(Gradients, Hadamard) {
  const std::vector<float> x = randomFloats(96, 1), slope = randomFloats(96, 3);
  std::vector<float> gradient(96);
  gradients::hadamard(slope, gradient.data());
  expectGradient(
      [&](const Reals &values) {
        Reals y(96);
        for (size_t i = 0; i < 96; ++i)
          for (size_t j = i < 64 ? 0 : 64; j < (i < 64 ? 64 : 96); ++j)
            y[i] += std::popcount(i & j & 63) % 2 ? -values[j] : values[j];
        return y;
      },
      x, slope, gradient);
}

TEST(Gradients, Attention) {
  // More tokens than a panel has, and heads that fill none.
  constexpr int64_t kTokens = 19, kSize = 5, kValues = kTokens * kSize;
  // q, k and v one after another.
  const std::vector<float> x = randomFloats(3 * kValues, 1),
                           slope = randomFloats(kValues, 3);
  std::vector<float> gradient(3 * kValues);
  const auto part = [](auto *values, int64_t i) {
    return gradients::HeadRows{values + i * kValues, kSize};
  };
  gradients::CausalAttention attention(kTokens, kSize);
  attention.add({part(x.data(), 0), part(x.data(), 1), part(x.data(), 2)},
                part(slope.data(), 0),
                {part(gradient.data(), 0), part(gradient.data(), 1),
                 part(gradient.data(), 2)});
  const auto f = [&](const Reals &values) {
    const auto at = [&](int64_t matrix, int64_t token, int64_t i) {
      return values[static_cast<size_t>(matrix * kValues + token * kSize + i)];
    };
    Reals y(kValues);
    for (int64_t query = 0; query < kTokens; ++query) {
      Reals powers;
      double sum = 0;
      for (int64_t key = 0; key <= query; ++key) {
        double score = 0;
        for (int64_t i = 0; i < kSize; ++i)
          score += at(0, query, i) * at(1, key, i);
        powers.push_back(std::exp(score / std::sqrt(double{kSize})));
        sum += powers.back();
      }
      for (int64_t key = 0; key <= query; ++key)
        for (int64_t i = 0; i < kSize; ++i)
          y[static_cast<size_t>(query * kSize + i)] +=
              powers[static_cast<size_t>(key)] / sum * at(2, key, i);
    }
    return y;
  };
  expectGradient(f, x, slope, gradient);
  // Adds to what is there, and forgets what it has seen.
  std::vector<float> twice = gradient;
  attention.add(
      {part(x.data(), 0), part(x.data(), 1), part(x.data(), 2)},
      part(slope.data(), 0),
      {part(twice.data(), 0), part(twice.data(), 1), part(twice.data(), 2)});
  for (size_t i = 0; i < gradient.size(); ++i)
    EXPECT_EQ(twice[i], 2 * gradient[i]) << i;
  std::vector<float> result(kValues);
  attention.run({part(x.data(), 0), part(x.data(), 1), part(x.data(), 2)},
                part(result.data(), 0));
  const Reals want = f(Reals(x.begin(), x.end()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(result[i], want[i], 1e-6) << i;
}

TEST(Gradients, LogLikelihoods) {
  const std::vector<float> x = randomFloats(21, 1);
  std::vector<float> gradient(21);
  gradients::logLikelihood(x, 7, gradient.data());
  expectGradient(
      [&](const Reals &values) {
        double sum = 0;
        for (double value : values)
          sum += std::exp(value);
        return Reals{values[7] - std::log(sum)};
      },
      x, {1.0f}, gradient);
}

TEST(Gradients, Divergences) {
  const std::vector<float> x = randomFloats(21, 1),
                           wanted = randomFloats(21, 2);
  std::vector<float> gradient(21);
  gradients::divergence(wanted, x, 0.5f, gradient.data());
  const auto logSum = [](const auto &values) {
    double sum = 0;
    for (double value : values)
      sum += std::exp(value);
    return std::log(sum);
  };
  const double wantedSum = logSum(wanted);
  expectGradient(
      [&](const Reals &values) {
        const double sum = logSum(values);
        double mean = 0;
        for (size_t i = 0; i < values.size(); ++i)
          mean += std::exp(wanted[i] - wantedSum) *
                  (wanted[i] - wantedSum - values[i] + sum);
        return Reals{mean};
      },
      x, {0.5f}, gradient);
}

TEST(Gradients, StepsAreOfTheRate) {
  // Whatever the size of a gradient is, a number moves by units against it.
  const std::vector<float> gradient = {1e-12f, -3.0f, 5.0f, 0.0f};
  const std::vector<float> start = {1, 2, 3, 4};
  std::vector<std::vector<float>> ends;
  for (unsigned threads : {1, 3}) {
    Adam adam({1, 10, 0, 1});
    std::vector<float> numbers = start;
    for (int step = 0; step < 10; ++step)
      adam.step(gradient, 0.01f, numbers, threads);
    ends.push_back(numbers);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NEAR(ends[0][0], 1 - 0.1, 1e-4);
  EXPECT_NEAR(ends[0][1], 2 + 1.0, 1e-3);
  EXPECT_EQ(ends[0][2], 3);
  EXPECT_EQ(ends[0][3], 4);
  EXPECT_EQ(cosineRate(0, 48), 1);
  EXPECT_NEAR(cosineRate(24, 48), 0.5, 1e-6);
  EXPECT_LT(cosineRate(47, 48), 0.002);
}

TEST(Gradients, DrawnTokensFollowTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f),
                                     std::log(5.0f), -300};
  std::vector<int> counts(4);
  for (int i = 0; i < 800; ++i)
    ++counts[static_cast<size_t>(
        gradients::drawToken(logits, (i + 0.5) / 800))];
  EXPECT_NEAR(counts[0], 100, 1);
  EXPECT_NEAR(counts[1], 200, 1);
  EXPECT_NEAR(counts[2], 500, 1);
  EXPECT_EQ(counts[3], 0);
}

TEST(Gradients, ProductsAreSumsOfOneOrder) {
  // Neither side fills its last panel; the depth is more than a chain's.
  constexpr int64_t kRows = 37, kColumns = 150, kDepth = 300;
  const std::vector<float> a = randomFloats(kRows * kDepth, 1),
                           b = randomFloats(kColumns * kDepth, 2);
  std::vector<float> results[3];
  for (unsigned threads : {1, 2, 3}) {
    std::vector<float> &c = results[threads - 1];
    c.assign(kRows * kColumns, 1.0f);
    addProduct(
        ProductSide::ofRows({a.data(), kRows, kDepth, kDepth}, threads),
        ProductSide::ofColumns({b.data(), kDepth, kColumns, kColumns}, threads),
        c.data(), kColumns, threads);
    EXPECT_EQ(c, results[0]);
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 1;
      for (int64_t l = 0; l < kDepth; ++l)
        sum += double{a[static_cast<size_t>(i * kDepth + l)]} *
               b[static_cast<size_t>(l * kColumns + j)];
      ASSERT_NEAR(results[0][static_cast<size_t>(i * kColumns + j)], sum, 1e-4)
          << i << ' ' << j;
    }
}
