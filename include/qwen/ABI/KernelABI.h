//===- KernelABI.h - Calling interface of generated code --------*- C++ -*-===//
//
// The Context that the runtime passes to compiled code, and the C signatures of
// the generated kernels. A change of this file that changes bytes needs a new
// kKernelAbiVersion; each artifact names the version that it needs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KERNELABI_H
#define QWEN_ABI_KERNELABI_H

#include <cstddef>
#include <cstdint>

namespace qwen {

inline constexpr uint32_t kKernelAbiVersion = 6;

/// Value of Context::flags if every quantizer, cache append and row of logits
/// of the token had finite values only. Otherwise the flag is the lowest id
/// (index in the manifest's "ops") of an op with another value.
inline constexpr uint32_t kNoFlag = 0xFFFFFFFF;

/// Everything that one call of `forward` reads and writes. The runtime owns
/// all memory. The alignment of all pointers is at least 64 bytes.
struct Context {
  /// Base of the weight image, mapped read-only.
  const uint8_t *weights;
  /// Base of the arena: the manifest's "arena_bytes" bytes.
  uint8_t *arena;
  /// Base of the KV pool: pages of the manifest's "kv.page_bytes" bytes. In a
  /// page, layer l has K at l * layerBytes, followed by V: K is
  /// [kv_head][head_dim][64], V is [kv_head][64][head_dim].
  uint8_t *kvPool;
  /// Token ids, [tokens].
  const int32_t *tokenIds;
  /// Row of each token's sequence in pageTables, [tokens].
  const int32_t *sequences;
  /// Position of each token in its sequence, [tokens]. Tokens of one sequence
  /// come in ascending order of position.
  const int32_t *positions;
  /// Page numbers of each sequence, [sequence][pageTableStride]; entry p is
  /// the page of positions 64p .. 64p+63.
  const int32_t *pageTables;
  /// Indices of the wanted tokens in the call, [rows].
  const int32_t *wantedRows;
  /// First op that saw a value that is not finite, [tokens]; the runtime sets
  /// kNoFlag before the call.
  uint32_t *flags;
  /// Result: logits, f32 [rows][the manifest's "output_stride"], or with
  /// wantHidden the hidden values, f32 [rows][hidden size].
  float *result;
  /// Static shares: thread t runs units [u * shares[t] >> 16,
  /// u * shares[t + 1] >> 16) of the u units of an op that are not in its tail;
  /// shares[0] = 0, shares[threads] = 65536, ascending.
  const uint32_t *shares;
  /// Waits until every thread of the call has reached the barrier.
  void (*barrier)(void *state, int32_t thread);
  void *barrierState;
  int64_t tokens;
  int64_t rows;
  int64_t pageTableStride;
  /// Not zero: write the hidden values in f32 instead of logits.
  int64_t wantHidden;
  /// Null, or a function that each thread calls when it begins op `op` (after
  /// the op's barrier) and, with the number of ops, when it ends.
  void (*trace)(void *state, int32_t thread, int32_t op);
  void *traceState;
  /// Units that threads have stolen from the tail of each op, [ops]; the
  /// runtime sets zeros before the call.
  uint32_t *taken;
};
static_assert(sizeof(Context) == size_t{20} * 8);

/// The compiled model. Every thread of a call runs it with the same context.
using ForwardFn = void(const Context *context, int32_t thread, int32_t threads);

// Products, made by the MLIR emitter. `m` is a multiple of the row's M. Row i
// of `out` and `residual` starts at i * ld (floats); panels [panelBegin,
// panelEnd) of 16 columns are computed. `bias` ([n padded to 16]) and
// `residual` may be null; out may be residual.

/// x is f32 [m][k]; weights are f32 or bf16.
using LinearF32Fn = void(const float *x, const uint8_t *weights,
                         const float *bias, const float *residual, float *out,
                         int64_t m, int64_t k, int64_t ld, int64_t panelBegin,
                         int64_t panelEnd);

/// Quantized activations: q is int8 [m][k], d f32 [m][ceil(k/128)], sums int32
/// [m][k/32].
using LinearQ8Fn = void(const int8_t *q, const float *d, const int32_t *sums,
                        const uint8_t *weights, const float *bias,
                        const float *residual, float *out, int64_t m, int64_t k,
                        int64_t ld, int64_t panelBegin, int64_t panelEnd);

/// Scores of one page: s[g][64] = (fma chain over headDim of q[g][.] * k[.][j])
/// * scale for j < n; kPage is [headDim][64] of the cache's format. Slots at
/// and past n hold anything. `next` is what is read after the page and as
/// large, which the kernel may prefetch; any pointer will do.
using AttentionScoresFn = void(const float *q, const void *kPage, float scale,
                               float *s, int64_t groups, int64_t headDim,
                               int64_t n, const void *next);

/// o[g][headDim] = fma chain over j < n of p[g][j] * v[j][.]; p is [g][64],
/// vPage [64][headDim] of the cache's format. headDim is a multiple of 8.
/// `next` as for scores.
using AttentionValuesFn = void(const float *p, const void *vPage, float *o,
                               int64_t groups, int64_t headDim, int64_t n,
                               const void *next);

// All other kernels, made by Halide. Vectors are contiguous and have the
// alignment of their elements. Outputs and inputs do not overlap. k and n of a
// token are multiples of 32, half is one of 4, headDim one of 8. A function
// that returns int32_t returns 1 if an input is not finite (or overflows f16),
// else 0.

/// Row `id` of a packed matrix as f32 [k].
using EmbedFn = void(const uint8_t *weights, int32_t id, int64_t k, float *out);

/// cos and sin of position * invFreq[i], i < half.
using RopeTableFn = void(int32_t position, const float *invFreq, int64_t half,
                         float *cos, float *sin);

using RmsNormF32Fn = void(const float *x, const float *w, int64_t k, float eps,
                          float *y);
using RmsNormQ8Fn = int32_t(const float *x, const float *w, int64_t k,
                            float eps, int8_t *q, float *d, int32_t *sums);
using QuantizeQ8Fn = int32_t(const float *x, int64_t k, int8_t *q, float *d,
                             int32_t *sums);
using SwiGluF32Fn = void(const float *gate, const float *up, int64_t n,
                         float *y);
/// n is at most kActivationBlock values and a multiple of 32: one block.
using SwiGluQ8Fn = int32_t(const float *gate, const float *up, int64_t n,
                           int8_t *q, float *d, int32_t *sums);

/// Rotates one head of 2 * half values.
using RopeFn = void(const float *x, const float *cos, const float *sin,
                    int64_t half, float *y);
/// The per-head norm of Qwen3, then the rotation.
using NormRopeFn = void(const float *x, const float *w, const float *cos,
                        const float *sin, int64_t half, float eps, float *y);

/// Writes x[i] to slot[i * 64] (K) or slot[i] (V) in the cache's format.
using AppendFn = int32_t(const float *x, int64_t headDim, void *slot);

/// For each of `rows` heads of one page with n visible slots, s and p
/// [rows][64]: m = max of s[0, n), +0 where that is a zero, p[j] = exp(s[j] -
/// m) for j < n and +0 for n <= j < 64, l = the sum of p in 16 lanes and the
/// tree.
using SoftmaxPageFn = void(const float *s, int64_t rows, int64_t n, float *p,
                           float *m, float *l);
/// Merges the state of a page for `rows` heads into their state so far. Each of
/// the three states is m[rows] and l[rows], both with padding of any value to a
/// multiple of kStateQueries, then o[rows][headDim]. A zero m is +0.
using MergePageFn = void(const float *old, const float *page, int64_t rows,
                         int64_t headDim, float *merged);
inline constexpr int64_t kStateQueries = 16;
/// y[i] = o[i] / l.
using FinishAttentionFn = void(const float *o, float l, int64_t headDim,
                               float *y);
/// Whether any of x[0, n) is not finite.
using CheckFiniteFn = int32_t(const float *x, int64_t n);

} // namespace qwen

#endif // QWEN_ABI_KERNELABI_H
