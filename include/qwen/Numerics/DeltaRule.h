//===- DeltaRule.h - Linear attention in plain C++ --------------*- C++ -*-===//
//
// The gated delta rule and what is around it, one token at a time. The driver
// computes the same bits (docs/numerics.md); these functions define them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_DELTARULE_H
#define QWEN_NUMERICS_DELTARULE_H

#include "qwen/ABI/KernelABI.h"

namespace qwen::numerics {

/// silu of the causal convolution of each channel. `weights` are
/// [channels][4], the last tap is the token's. `state` is [3][channels], the
/// inputs of the three tokens before, oldest first; x [channels] becomes its
/// last row.
void shortConvolution(const float *x, const float *weights, int64_t channels,
                      float *state, float *y);

/// decay = exp(-rate * softplus(a + bias)) and beta = sigmoid(b), for each of
/// n value heads.
void deltaGates(const float *a, const float *b, const float *rate,
                const float *bias, int64_t n, float *decay, float *beta);

/// The gated delta rule of one value head and token: decays the state
/// [keyDim][valueDim], corrects what it has for the key by beta, and reads it
/// with the query. q and k are [keyDim], which their norms scale first; v and y
/// are [valueDim].
void deltaRule(const float *q, const float *k, const float *v, float decay,
               float beta, int64_t keyDim, int64_t valueDim, float *state,
               float *y);

/// y = x * sigmoid(gate) for n values.
void sigmoidGate(const float *x, const float *gate, int64_t n, float *y);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_DELTARULE_H
