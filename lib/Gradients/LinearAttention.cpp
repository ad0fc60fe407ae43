//===- LinearAttention.cpp - Backward passes of linear attention ----------===//

#include "qwen/Gradients/LinearAttention.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/WideVectors.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace qwen;
using namespace qwen::gradients;

//===----------------------------------------------------------------------===//
// The convolution
//===----------------------------------------------------------------------===//

ShortConvolution::ShortConvolution(const float *weights, int64_t tokens,
                                   int64_t channels)
    : tokens(tokens), sums(static_cast<size_t>(channels)), powers(sums.size()) {
  for (size_t tap = 0; tap < taps.size(); ++tap) {
    taps[tap].resize(sums.size());
    for (size_t i = 0; i < sums.size(); ++i)
      taps[tap][i] = weights[i * taps.size() + tap];
  }
}

/// The token whose input a tap of `token` reads; negative before the first.
static int64_t tapToken(int64_t token, int64_t tap) {
  return token - (kConvolutionTaps - 1) + tap;
}

void ShortConvolution::sum(HeadRows<const float> x, int64_t token) {
  std::ranges::fill(sums, 0.0f);
  for (int64_t tap = 0; tap < kConvolutionTaps; ++tap) {
    if (tapToken(token, tap) < 0)
      continue;
    const float *row = x.row(tapToken(token, tap));
    const std::vector<float> &weights = taps[static_cast<size_t>(tap)];
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += weights[i] * row[i];
  }
  std::ranges::transform(sums, powers.begin(), [](float x) { return -x; });
  numerics::exp(powers);
}

void ShortConvolution::run(HeadRows<const float> x, HeadRows<float> y) {
  for (int64_t token = 0; token < tokens; ++token) {
    sum(x, token);
    float *to = y.row(token);
    for (size_t i = 0; i < sums.size(); ++i)
      to[i] = sums[i] / (1 + powers[i]);
  }
}

// With s = sigmoid(x), silu' = s (1 + x (1 - s)).
void ShortConvolution::add(HeadRows<const float> x, HeadRows<const float> dy,
                           HeadRows<float> dx) {
  for (int64_t token = 0; token < tokens; ++token) {
    sum(x, token);
    const float *from = dy.row(token);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float s = 1 / (1 + powers[i]);
      sums[i] = from[i] * (s * (1 + sums[i] * (1 - s)));
    }
    for (int64_t tap = 0; tap < kConvolutionTaps; ++tap) {
      if (tapToken(token, tap) < 0)
        continue;
      float *to = dx.row(tapToken(token, tap));
      const std::vector<float> &weights = taps[static_cast<size_t>(tap)];
      for (size_t i = 0; i < sums.size(); ++i)
        to[i] += weights[i] * sums[i];
    }
  }
}

//===----------------------------------------------------------------------===//
// The gates
//===----------------------------------------------------------------------===//

// softplus' = sigmoid.
void gradients::deltaGates(std::span<const float> a, const float *b,
                           const float *rate, const float *bias,
                           const float *dDecay, const float *dBeta, float *dA,
                           float *dB) {
  for (size_t i = 0; i < a.size(); ++i) {
    const float x = a[i] + bias[i];
    const float decay = numerics::exp(-(rate[i] * numerics::softplus(x)));
    dA[i] -= dDecay[i] * decay * rate[i] * numerics::sigmoid(x);
    const float beta = numerics::sigmoid(b[i]);
    dB[i] += dBeta[i] * beta * (1 - beta);
  }
}

//===----------------------------------------------------------------------===//
// The delta rule
//===----------------------------------------------------------------------===//

/// What the norms of keys and queries add to sums of squares.
static constexpr float kNormEps = 1e-6f;
/// Sums of a row of the state run in so many lanes.
static constexpr int64_t kLanes = 16;
/// States of so many tokens are kept at a time; the tokens run again from the
/// state before them.
static constexpr int64_t kSegment = 32;

DeltaRule::DeltaRule(int64_t tokens, int64_t keySize, int64_t valueSize)
    : tokens(tokens), keySize(keySize), valueSize(valueSize),
      columns(alignTo(valueSize, kLanes)), stateSize(keySize * columns),
      queryScale(
          static_cast<float>(1 / std::sqrt(static_cast<double>(keySize)))),
      read(static_cast<size_t>(tokens * columns)), change(read.size()) {}

DeltaRule::Normed DeltaRule::norm(HeadRows<const float> rows) const {
  Normed normed;
  normed.values.resize(static_cast<size_t>(tokens * keySize));
  for (int64_t token = 0; token < tokens; ++token) {
    const float *row = rows.row(token);
    double square = 0;
    for (int64_t i = 0; i < keySize; ++i)
      square += double{row[i]} * row[i];
    const auto scale =
        static_cast<float>(1 / std::sqrt(square + double{kNormEps}));
    normed.scales.push_back(scale);
    for (int64_t i = 0; i < keySize; ++i)
      normed.values[static_cast<size_t>(token * keySize + i)] = row[i] * scale;
  }
  return normed;
}

// With r = 1 / sqrt(sum x^2 + eps) and y = r x, dx = r (dy - y (y dy)).
void DeltaRule::addNorm(const Normed &normed, int64_t token,
                        const std::vector<float> &dy,
                        HeadRows<float> dx) const {
  const float *y = normed.row(token, keySize);
  double slope = 0;
  for (int64_t i = 0; i < keySize; ++i)
    slope += double{y[i]} * dy[static_cast<size_t>(i)];
  const float scale = normed.scales[static_cast<size_t>(token)];
  const auto along = static_cast<float>(slope);
  float *to = dx.row(token);
  for (int64_t i = 0; i < keySize; ++i)
    to[i] += scale * (dy[static_cast<size_t>(i)] - y[i] * along);
}

/// Sets the state behind a token.
void DeltaRule::advance(const Inputs &inputs, int64_t token,
                        const float *before, float *after) {
  const float *key = keys.row(token, keySize);
  const float *v = inputs.v.row(token);
  const float decay = *inputs.decay.row(token), beta = *inputs.beta.row(token);
  float *found = read.data() + token * columns,
        *delta = change.data() + token * columns;
  numerics::inWideVectors([=, this] {
    std::fill_n(found, columns, 0.0f);
    for (int64_t i = 0; i < keySize; ++i)
      for (int64_t j = 0; j < columns; ++j)
        found[j] += key[i] * before[i * columns + j];
    for (int64_t j = 0; j < valueSize; ++j)
      delta[j] = beta * (v[j] - decay * found[j]);
    for (int64_t i = 0; i < keySize; ++i)
      for (int64_t j = 0; j < columns; ++j)
        after[i * columns + j] =
            decay * before[i * columns + j] + key[i] * delta[j];
  });
}

void DeltaRule::run(const Inputs &inputs, HeadRows<float> output) {
  queries = norm(inputs.q);
  keys = norm(inputs.k);
  std::vector<float> state(static_cast<size_t>(stateSize)), next(state.size());
  for (int64_t token = 0; token < tokens; ++token) {
    advance(inputs, token, state.data(), next.data());
    state.swap(next);
    const float *query = queries.row(token, keySize), *from = state.data();
    float *y = output.row(token);
    numerics::inWideVectors([=, this] {
      std::fill_n(y, valueSize, 0.0f);
      for (int64_t i = 0; i < keySize; ++i)
        for (int64_t j = 0; j < valueSize; ++j)
          y[j] += query[i] * from[i * columns + j];
      for (int64_t j = 0; j < valueSize; ++j)
        y[j] *= queryScale;
    });
  }
}

/// The sum of a[j] * b[j] over `count` values, a multiple of kLanes.
[[gnu::always_inline]] static inline float
sumOfProducts(const float *a, const float *b, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t j = 0; j < count; j += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += a[j + lane] * b[j + lane];
  for (int64_t half = kLanes / 2; half >= 1; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane)
      lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// With the state S before a token and T behind it, k and q normed, r = S^T k,
// c = beta (v - decay r), T = decay S + k c^T and y = T^T q:
//   dT += q dy^T       dq = T dy              dc = dT^T k
//   dv = beta dc       dbeta = dc (v - decay r)
//   dk = dT c - decay S dv                    dr = -decay dv
//   ddecay = <dT, S> - r dv                   dS = decay (dT - k dv^T)
void DeltaRule::addToken(const Inputs &inputs, int64_t token,
                         const float *before, const float *after,
                         HeadRows<const float> dOutput,
                         const Gradients &gradients) {
  const float *query = queries.row(token, keySize),
              *key = keys.row(token, keySize), *v = inputs.v.row(token),
              *dy = dOutput.row(token), *found = read.data() + token * columns,
              *delta = change.data() + token * columns;
  const float decay = *inputs.decay.row(token), beta = *inputs.beta.row(token);
  const auto width = static_cast<size_t>(columns);
  std::vector<float> scaled(width), dChange(width), dValue(width),
      dQuery(static_cast<size_t>(keySize)), dKey(dQuery.size());
  for (int64_t j = 0; j < valueSize; ++j)
    scaled[static_cast<size_t>(j)] = dy[j] * queryScale;
  float decays = 0;
  numerics::inWideVectors([&] {
    for (int64_t i = 0; i < keySize; ++i) {
      float *slope = slopes.data() + i * columns;
      for (size_t j = 0; j < width; ++j)
        slope[j] += query[i] * scaled[j];
      for (size_t j = 0; j < width; ++j)
        dChange[j] += key[i] * slope[j];
    }
    for (size_t j = 0; j < width; ++j)
      dValue[j] = beta * dChange[j];
    for (int64_t i = 0; i < keySize; ++i) {
      const float *old = before + i * columns;
      float *slope = slopes.data() + i * columns;
      dQuery[static_cast<size_t>(i)] =
          sumOfProducts(after + i * columns, scaled.data(), columns);
      dKey[static_cast<size_t>(i)] =
          sumOfProducts(slope, delta, columns) -
          decay * sumOfProducts(old, dValue.data(), columns);
      decays += sumOfProducts(slope, old, columns);
      for (size_t j = 0; j < width; ++j)
        slope[j] = decay * (slope[j] - key[i] * dValue[j]);
    }
    decays -= sumOfProducts(found, dValue.data(), columns);
  });
  float betas = 0, *toValue = gradients.v.row(token);
  for (int64_t j = 0; j < valueSize; ++j) {
    const auto at = static_cast<size_t>(j);
    betas += dChange[at] * (v[j] - decay * found[j]);
    toValue[j] += dValue[at];
  }
  *gradients.decay.row(token) += decays;
  *gradients.beta.row(token) += betas;
  addNorm(queries, token, dQuery, gradients.q);
  addNorm(keys, token, dKey, gradients.k);
}

void DeltaRule::add(const Inputs &inputs, HeadRows<const float> dOutput,
                    const Gradients &gradients) {
  queries = norm(inputs.q);
  keys = norm(inputs.k);
  // The state before each segment.
  const int64_t segments = ceilDiv(tokens, kSegment);
  std::vector<float> starts(static_cast<size_t>(segments * stateSize)),
      states(static_cast<size_t>((kSegment + 1) * stateSize));
  const auto runSegment = [&](int64_t segment) {
    const int64_t first = segment * kSegment,
                  count = std::min(kSegment, tokens - first);
    std::copy_n(starts.data() + segment * stateSize, stateSize, states.data());
    for (int64_t i = 0; i < count; ++i)
      advance(inputs, first + i, states.data() + i * stateSize,
              states.data() + (i + 1) * stateSize);
    return count;
  };
  for (int64_t segment = 0; segment + 1 < segments; ++segment)
    std::copy_n(states.data() + runSegment(segment) * stateSize, stateSize,
                starts.data() + (segment + 1) * stateSize);
  slopes.assign(static_cast<size_t>(stateSize), 0.0f);
  for (int64_t segment = segments - 1; segment >= 0; --segment)
    for (int64_t i = runSegment(segment) - 1; i >= 0; --i)
      addToken(inputs, segment * kSegment + i, states.data() + i * stateSize,
               states.data() + (i + 1) * stateSize, dOutput, gradients);
}
