//===- Gradients.h - Backward passes of the ops -----------------*- C++ -*-===//
//
// For ops of the graph, what the gradient of a loss by their result adds to the
// gradient by their inputs, in f32 (docs/decisions/0040-gradients.md). Each
// function adds to its outputs. They know no MLIR and no model. Products are in
// Products.h; docs/numerics.md defines the ops.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_GRADIENTS_GRADIENTS_H
#define QWEN_GRADIENTS_GRADIENTS_H

#include <cstdint>
#include <span>
#include <vector>

namespace qwen {
class ProductSide;
} // namespace qwen

namespace qwen::gradients {

/// Of y = x / sqrt(mean(x^2) + eps) * weight, over all values of `x`.
void rmsNorm(std::span<const float> x, const float *weight, float eps,
             const float *dy, float *dx);
/// The same by the weights.
void rmsNormWeights(std::span<const float> x, float eps, const float *dy,
                    float *dWeight);

/// Of the half-split rotation of one head, 2 * `half` values.
void rope(const float *cos, const float *sin, int64_t half, const float *dy,
          float *dx);

/// Of silu(gate) * up.
void swiGlu(std::span<const float> gate, const float *up, const float *dy,
            float *dGate, float *dUp);

/// Of x * sigmoid(gate).
void gate(std::span<const float> x, const float *gate, const float *dy,
          float *dx, float *dGate);

/// Of the probabilities of the experts `ids` of a token: the softmax of all
/// logits, divided by their sum where they are `normalized`.
void route(std::span<const float> logits, std::span<const int32_t> ids,
           bool normalized, const float *dWeights, float *dLogits);

/// Of the transform of `qwen.hadamard`, which is symmetric.
void hadamard(std::span<const float> dy, float *dx);

/// The values of a head for each token of a sequence: rows of `size` values
/// that are `stride` apart.
template <typename T> struct HeadRows {
  T *values;
  int64_t stride;
  T *row(int64_t token) const { return values + token * stride; }
};

/// Causal attention of one query head over `tokens` tokens: softmax(scale * q
/// k^T) v.
class CausalAttention {
public:
  /// A head has `size` values, `tokens` is at least 1.
  CausalAttention(int64_t tokens, int64_t size);

  struct Inputs {
    HeadRows<const float> q, k, v;
  };
  struct Gradients {
    HeadRows<float> q, k, v;
  };
  /// Adds the result to rows of zeros.
  void run(const Inputs &inputs, HeadRows<float> output);
  /// Adds to the gradients by the inputs.
  void add(const Inputs &inputs, HeadRows<const float> dOutput,
           const Gradients &gradients);

private:
  struct Sides;
  void weigh(const Sides &sides);
  void weighRow(int64_t query);
  void addRows(const float *panel, const ProductSide &other, int64_t first,
               int64_t end, int64_t token, HeadRows<float> to) const;
  void addQueries(const std::vector<float> &values, const ProductSide &other,
                  HeadRows<float> to) const;

  const int64_t tokens, size, padded;
  const float scale;
  /// Panels of 16 keys, [key / 16][query][16]: the weights of the softmax, and
  /// the gradient by them and then by the scores. Both are 0 behind a query.
  std::vector<float> weights, slopes;
};

/// A token drawn from the softmax of `logits` by `uniform`, from 0 to below 1.
int32_t drawToken(std::span<const float> logits, double uniform);

/// Sets `gradient` to the gradient of log softmax(logits)[token].
void logLikelihood(std::span<const float> logits, int32_t token,
                   float *gradient);

/// Sets `gradient` to the gradient by `logits` of the Kullback-Leibler
/// divergence of softmax(wanted) and softmax(logits), times `scale`.
void divergence(std::span<const float> wanted, std::span<const float> logits,
                float scale, float *gradient);

} // namespace qwen::gradients

#endif // QWEN_GRADIENTS_GRADIENTS_H
