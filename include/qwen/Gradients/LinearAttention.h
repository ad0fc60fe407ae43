//===- LinearAttention.h - Backward passes of linear attention --*- C++ -*-===//
//
// Like Gradients.h, for the ops of layers with linear attention.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_GRADIENTS_LINEARATTENTION_H
#define QWEN_GRADIENTS_LINEARATTENTION_H

#include "qwen/ABI/KernelABI.h"
#include "qwen/Gradients/Gradients.h"

#include <array>

namespace qwen::gradients {

/// The causal convolution of some channels over the tokens of a sequence, and
/// silu.
class ShortConvolution {
public:
  /// `weights` are [channels][kConvolutionTaps].
  ShortConvolution(const float *weights, int64_t tokens, int64_t channels);

  /// Sets the result.
  void run(HeadRows<const float> x, HeadRows<float> y);
  /// Adds to the gradient by the input.
  void add(HeadRows<const float> x, HeadRows<const float> dy,
           HeadRows<float> dx);

private:
  void sum(HeadRows<const float> x, int64_t token);

  const int64_t tokens;
  /// The weights by tap. What a token has before silu, and exp(-x) of it.
  std::array<std::vector<float>, kConvolutionTaps> taps;
  std::vector<float> sums, powers;
};

/// Of decay = exp(-rate * softplus(a + bias)) and beta = sigmoid(b), of the
/// heads of a token.
void deltaGates(std::span<const float> a, const float *b, const float *rate,
                const float *bias, const float *dDecay, const float *dBeta,
                float *dA, float *dB);

/// The gated delta rule of one value head over the tokens of a sequence, from a
/// state of zeros.
class DeltaRule {
public:
  DeltaRule(int64_t tokens, int64_t keySize, int64_t valueSize);

  struct Inputs {
    HeadRows<const float> q, k, v, decay, beta;
  };
  struct Gradients {
    HeadRows<float> q, k, v, decay, beta;
  };
  /// Sets the result.
  void run(const Inputs &inputs, HeadRows<float> output);
  /// Adds to the gradients by the inputs.
  void add(const Inputs &inputs, HeadRows<const float> dOutput,
           const Gradients &gradients);

private:
  /// A vector of each token, divided by its norm, and the inverse norms.
  struct Normed {
    const float *row(int64_t token, int64_t size) const {
      return values.data() + token * size;
    }
    std::vector<float> values, scales;
  };
  Normed norm(HeadRows<const float> rows) const;
  void addNorm(const Normed &normed, int64_t token,
               const std::vector<float> &dy, HeadRows<float> dx) const;
  void advance(const Inputs &inputs, int64_t token, const float *before,
               float *after);
  void addToken(const Inputs &inputs, int64_t token, const float *before,
                const float *after, HeadRows<const float> dOutput,
                const Gradients &gradients);

  /// `columns` are the values of a row of the state, `valueSize` and zeros.
  const int64_t tokens, keySize, valueSize, columns, stateSize;
  const float queryScale;
  Normed queries, keys;
  /// By token, [columns]: what the state has for its key, and the change.
  std::vector<float> read, change;
  /// The gradient by the state.
  std::vector<float> slopes;
};

} // namespace qwen::gradients

#endif // QWEN_GRADIENTS_LINEARATTENTION_H
