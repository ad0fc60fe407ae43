//===- Driver.h - The functions between forward and kernels -----*- C++ -*-===//
//
// The driver has one function for each kind of op. `forward` calls it through
// an instance: a function that passes the op's places on and adds constants
// (decision 0012). A driver function gives the calling thread its units of the
// op's work, computes addresses and calls kernels.
//
// Parameters come in this order:
//
// * the call's context and thread;
// * the place of each operand but ids, positions and the residual: bytes from
//   the arena's base, stride in elements, and scales and sums if it is
//   quantized;
// * for each weight bytes from the base of the weight image, -1 for an absent
//   bias or norm of heads;
// * the place of each result in the arena;
// * numbers that only the op has: sizes, eps, the residual (-1 if absent), the
//   layer;
// * the op's id;
// * what an instance fixes: kernels, schedules, shapes.
//
// The sources are compiled twice: to bitcode, which qwen-opt links with the
// kernels, and natively, for tests and sanitizers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_DRIVER_DRIVER_H
#define QWEN_CODEGEN_DRIVER_DRIVER_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"

namespace qwen {

/// A kernel of a product and the number of tokens that it multiplies together.
template <typename Fn> struct DriverTile {
  Fn *kernel;
  int64_t m;
};

extern "C" {

/// Waits until all threads of the call have arrived.
void qwenDriverBarrier(const Context *context, int32_t thread);

/// Says that the thread begins op `op`, where the call is traced.
void qwenDriverTrace(const Context *context, int32_t thread, int32_t op);

/// Whether the call wants hidden values rather than logits.
bool qwenDriverWantHidden(const Context *context, int32_t thread);

/// The rows of the embedding, f32 [tokens][k].
void qwenDriverEmbedding(const Context *context, int32_t thread, int64_t weight,
                         int64_t out, int64_t stride, int64_t k, int32_t op,
                         EmbedFn *kernel);

/// cos and sin of each token's position, times scale, f32 [tokens][half].
void qwenDriverRopeTable(const Context *context, int32_t thread,
                         int64_t frequencies, int64_t cos, int64_t cosStride,
                         int64_t sin, int64_t sinStride, int64_t half,
                         float scale, int32_t op, RopeTableFn *kernel);

/// RMSNorm of all tokens, or of the wanted ones, where token i of the result is
/// wanted token i.
void qwenDriverRmsNormF32(const Context *context, int32_t thread, int64_t in,
                          int64_t inStride, int64_t weight, int64_t out,
                          int64_t stride, int64_t k, float eps, bool wanted,
                          int32_t op, RmsNormF32Fn *kernel);
/// The same with a quantized result.
void qwenDriverRmsNormQ8(const Context *context, int32_t thread, int64_t in,
                         int64_t inStride, int64_t weight, int64_t out,
                         int64_t stride, int64_t scales, int64_t sums,
                         int64_t k, float eps, bool wanted, int32_t op,
                         RmsNormQ8Fn *kernel);
/// RMSNorm of the wanted tokens as the call's result, tested for values that
/// are not finite.
void qwenDriverHiddenRows(const Context *context, int32_t thread, int64_t in,
                          int64_t inStride, int64_t weight, int64_t k,
                          float eps, int32_t op, RmsNormF32Fn *norm,
                          CheckFiniteFn *check);

/// RMSNorm of each head of headDim values.
void qwenDriverHeadNorm(const Context *context, int32_t thread, int64_t in,
                        int64_t inStride, int64_t weight, int64_t out,
                        int64_t stride, int64_t k, float eps, int64_t headDim,
                        int32_t op, RmsNormF32Fn *kernel);

/// Quantizes the activations of all tokens.
void qwenDriverQuantize(const Context *context, int32_t thread, int64_t in,
                        int64_t inStride, int64_t out, int64_t stride,
                        int64_t scales, int64_t sums, int64_t k, int32_t op,
                        QuantizeQ8Fn *kernel);

/// silu(gate) * up for n values of each token. A unit is a block of a token.
void qwenDriverSwiGluF32(const Context *context, int32_t thread, int64_t gate,
                         int64_t gateStride, int64_t up, int64_t upStride,
                         int64_t out, int64_t stride, int64_t n, int32_t op,
                         SwiGluF32Fn *kernel);
void qwenDriverSwiGluQ8(const Context *context, int32_t thread, int64_t gate,
                        int64_t gateStride, int64_t up, int64_t upStride,
                        int64_t out, int64_t stride, int64_t scales,
                        int64_t sums, int64_t n, int32_t op,
                        SwiGluQ8Fn *kernel);

/// in * sigmoid(gate) for n values of each token. A unit is a block of a token.
void qwenDriverGateF32(const Context *context, int32_t thread, int64_t in,
                       int64_t inStride, int64_t gate, int64_t gateStride,
                       int64_t out, int64_t stride, int64_t n, int32_t op,
                       SigmoidGateFn *kernel);
void qwenDriverGateQ8(const Context *context, int32_t thread, int64_t in,
                      int64_t inStride, int64_t gate, int64_t gateStride,
                      int64_t out, int64_t stride, int64_t scales, int64_t sums,
                      int64_t n, int32_t op, SigmoidGateFn *kernel,
                      QuantizeQ8Fn *quantize);

/// Decay and beta of each of `heads` value heads.
void qwenDriverDeltaGates(const Context *context, int32_t thread, int64_t a,
                          int64_t aStride, int64_t b, int64_t bStride,
                          int64_t rate, int64_t bias, int64_t decay,
                          int64_t decayStride, int64_t beta, int64_t betaStride,
                          int64_t heads, int32_t op, DeltaGatesFn *kernel);

/// silu of the convolution of each channel with the tokens before, which are
/// in the fixed cache `cache`: f32 [3][channels] for each layer.
void qwenDriverShortConvolution(const Context *context, int32_t thread,
                                int64_t in, int64_t inStride, int64_t weight,
                                int64_t out, int64_t stride, int64_t channels,
                                int64_t layer, int32_t op, int64_t cache,
                                int64_t cacheStride,
                                ShortConvolutionFn *kernel);

/// The gated delta rule of all tokens. An input has the heads of q, of k and of
/// v. The fixed cache `cache` has the states of each layer, f32
/// [heads][valueDim / 16][keyDim][16]. `sharing` consecutive value
/// heads share a key head, and the key heads take turns. `scale` is the factor
/// of queries.
void qwenDriverDeltaRule(const Context *context, int32_t thread, int64_t in,
                         int64_t inStride, int64_t decay, int64_t decayStride,
                         int64_t beta, int64_t betaStride, int64_t out,
                         int64_t stride, int64_t layer, int32_t op,
                         int64_t cache, int64_t cacheStride, int64_t keyHeads,
                         int64_t keyDim, int64_t heads, int64_t valueDim,
                         int64_t sharing, float scale, float *scratch,
                         DeltaRuleFn *kernel);

/// Floats of `scratch` that qwenDriverDeltaRule needs: the queries and keys of
/// two tokens.
constexpr int64_t deltaRuleScratch(int64_t keyDim) { return 4 * keyDim; }

/// The product of all tokens with `panels` panels, plus bias and residual,
/// which may be absent. residual and out have the same stride. `tiles` come
/// from the largest M to 1. `cached` is the number of values along K of the
/// panels that fit in a core's cache, and a kernel takes at least `least`
/// panels at a time. `reused` is the number of values along K of the tokens
/// that a kernel takes at a time, where it takes at least its M; 0: all tokens.
/// `together` panels share the work of a kernel on activations before it
/// multiplies.
void qwenDriverLinearF32(const Context *context, int32_t thread, int64_t in,
                         int64_t inStride, int64_t weight, int64_t bias,
                         int64_t out, int64_t stride, int64_t k, int64_t panels,
                         int64_t residual, int32_t op, int64_t cached,
                         int64_t least, int64_t reused, int64_t together,
                         const DriverTile<LinearF32Fn> *tiles,
                         int64_t tileCount);
void qwenDriverLinearQ8(const Context *context, int32_t thread, int64_t in,
                        int64_t inStride, int64_t scales, int64_t sums,
                        int64_t weight, int64_t bias, int64_t out,
                        int64_t stride, int64_t k, int64_t panels,
                        int64_t residual, int32_t op, int64_t cached,
                        int64_t least, int64_t reused, int64_t together,
                        const DriverTile<LinearQ8Fn> *tiles, int64_t tileCount);

/// The logits of the wanted tokens as the call's result, tested for values that
/// are not finite.
void qwenDriverLmHeadF32(const Context *context, int32_t thread, int64_t in,
                         int64_t inStride, int64_t weight, int64_t k,
                         int64_t panels, int64_t stride, int32_t op,
                         CheckFiniteFn *check, int64_t cached, int64_t least,
                         int64_t reused, int64_t together,
                         const DriverTile<LinearF32Fn> *tiles,
                         int64_t tileCount);
void qwenDriverLmHeadQ8(const Context *context, int32_t thread, int64_t in,
                        int64_t inStride, int64_t scales, int64_t sums,
                        int64_t weight, int64_t k, int64_t panels,
                        int64_t stride, int32_t op, CheckFiniteFn *check,
                        int64_t cached, int64_t least, int64_t reused,
                        int64_t together, const DriverTile<LinearQ8Fn> *tiles,
                        int64_t tileCount);

/// Rotates keys and appends keys and values to the paged cache `cache`. `layer`
/// is the byte of the layer in a page. `normRope` norms and rotates whole
/// heads; or `rope` rotates the first 2 * half values of a head, behind
/// `headNorm`, which may be null.
void qwenDriverAppend(const Context *context, int32_t thread, int64_t keys,
                      int64_t keyStride, int64_t values, int64_t valueStride,
                      int64_t cos, int64_t cosStride, int64_t sin,
                      int64_t sinStride, int64_t norm, float eps, int64_t layer,
                      int32_t op, int64_t kvHeads, int64_t headDim,
                      int64_t elementBytes, int64_t cache, int64_t pageBytes,
                      float *scratch, RopeFn *rope, NormRopeFn *normRope,
                      RmsNormF32Fn *headNorm, int64_t half, AppendKFn *appendK,
                      AppendVFn *appendV);

/// Floats of `scratch` that qwenDriverAppend needs, with or without `headNorm`.
constexpr int64_t appendScratch(int64_t headDim, bool hasHeadNorm = false) {
  return hasHeadNorm ? 2 * headDim : headDim;
}

/// Attention of all tokens over the cache. `groupQueries` query heads share a
/// KV head, and the queries of up to `blockTokens` tokens read a page together.
void qwenDriverAttention(
    const Context *context, int32_t thread, int64_t queries,
    int64_t queryStride, int64_t cos, int64_t cosStride, int64_t sin,
    int64_t sinStride, int64_t norm, int64_t out, int64_t outStride, float eps,
    int64_t layer, int32_t op, int64_t kvHeads, int64_t groupQueries,
    int64_t headDim, int64_t elementBytes, int64_t cache, int64_t pageBytes,
    float scale, int64_t blockTokens, float *scratch, RopeFn *rope,
    NormRopeFn *normRope, RmsNormF32Fn *headNorm, int64_t half,
    AttentionScoresFn *scores, AttentionValuesFn *values,
    SoftmaxPageFn *softmax, MergePageFn *merge, FinishAttentionFn *finish);

/// Floats of one state (M, L, O) of attention for `queries` queries.
constexpr int64_t attentionState(int64_t queries, int64_t headDim) {
  return 2 * alignTo(queries, kStateQueries) + queries * headDim;
}
/// Floats of `scratch` that qwenDriverAttention needs: rotated queries, scores
/// and weights of a page, three states. Each starts at a multiple of 16. With
/// `headNorm` it needs headDim floats behind these.
constexpr int64_t attentionScratch(int64_t groupQueries, int64_t headDim,
                                   int64_t blockTokens) {
  const int64_t queries = groupQueries * blockTokens;
  return alignTo(queries * headDim, 16) + 2 * queries * kPageTokens +
         3 * alignTo(attentionState(queries, headDim), 16);
}

} // extern "C"

} // namespace qwen

#endif // QWEN_CODEGEN_DRIVER_DRIVER_H
