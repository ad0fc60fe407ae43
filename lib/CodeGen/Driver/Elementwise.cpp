//===- Elementwise.cpp - Embedding, norms, quantization, SwiGLU -----------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

[[gnu::noinline]] void qwen::qwenDriverBarrier(const Context *context,
                                               int32_t thread) {
  context->barrier(context->barrierState, thread);
}

[[gnu::noinline]] void qwen::qwenDriverTrace(const Context *context,
                                             int32_t thread, int32_t op) {
  if (context->trace)
    context->trace(context->traceState, thread, op);
}

QWEN_ENTRY(Embedding, Embedding) {
  const EmbeddingArguments of = arguments;
  const auto *table = weightsAt<uint8_t>(context, of.weight);
  const Floats out = floatsAt(context, of.out);
  forUnits(context, thread, context->tokens(),
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             fixed.kernel(table, context->tokenIds[token], of.k, out.of(token));
           });
}

/// Calls compute(token, inverse, cos, sin) for the thread's tokens, and scales
/// cos and sin.
template <typename Compute>
QWEN_SPECIALISED static void makeTable(const Context *context, int32_t thread,
                                       const RopeTableArguments &of,
                                       const Compute &compute) {
  const float *inverse = weightsAt(context, of.frequencies);
  const Floats cos = floatsAt(context, of.cos), sin = floatsAt(context, of.sin);
  forUnits(context, thread, context->tokens(),
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             float *c = cos.of(token), *s = sin.of(token);
             compute(token, inverse, c, s);
             // YaRN. A few values a token: a kernel of its own would gain
             // nothing.
             if (of.scale != 1)
               for (int64_t i = 0; i < of.half; ++i) {
                 c[i] *= of.scale;
                 s[i] *= of.scale;
               }
           });
}

QWEN_ENTRY(RopeTable, RopeTable) {
  const RopeTableArguments of = arguments;
  makeTable(context, thread, of,
            [&](int64_t token, const float *inverse, float *c,
                float *s) QWEN_SPECIALISED_LAMBDA {
              fixed.kernel(context->positions[token], inverse, of.half, c, s);
            });
}

QWEN_ENTRY(RopeSections, RopeTable) {
  const RopeTableArguments of = arguments;
  float *cosOfAxis = fixed.scratch, *sinOfAxis = cosOfAxis + of.half;
  makeTable(context, thread, of,
            [&](int64_t token, const float *inverse, float *c, float *s)
                QWEN_SPECIALISED_LAMBDA {
                  for (int64_t axis = 0; axis < 3; ++axis) {
                    fixed.kernel(context->ropePositions[3 * token + axis],
                                 inverse, of.half, cosOfAxis, sinOfAxis);
                    for (int64_t i = 0; i < of.half; ++i) {
                      if (ropeAxis(i, fixed.times, fixed.heights, fixed.widths,
                                   fixed.interleaved != 0) != axis)
                        continue;
                      c[i] = cosOfAxis[i];
                      s[i] = sinOfAxis[i];
                    }
                  }
                });
}

//===----------------------------------------------------------------------===//
// Norms and quantization
//===----------------------------------------------------------------------===//

/// Calls compute(i, token) for the thread's share of a count. Result i belongs
/// to value `token` of the input: to value i, or to the i-th token that the
/// count selects.
template <typename Compute>
QWEN_SPECIALISED static void forTokens(const Context *context, int32_t thread,
                                       const CountOfCall &count, bool gathers,
                                       const Compute &compute) {
  forUnits(context, thread, count.number,
           [&](int64_t i) QWEN_SPECIALISED_LAMBDA {
             compute(i, gathers ? count.tokens[i] : i);
           });
}

QWEN_ENTRY(RmsNormF32, RmsNorm) {
  const RmsNormArguments of = arguments;
  const float *w = weightsAt(context, of.weight);
  const Floats in = floatsAt(context, of.in), out = floatsAt(context, of.out);
  forTokens(context, thread, context->counts[of.count], of.gathers != 0,
            [&](int64_t i, int64_t token) QWEN_SPECIALISED_LAMBDA {
              fixed.kernel(in.of(token), w, of.k, of.eps, out.of(i));
            });
}

QWEN_ENTRY(RmsNormQ8, RmsNorm) {
  const RmsNormArguments of = arguments;
  const float *w = weightsAt(context, of.weight);
  const Floats in = floatsAt(context, of.in);
  const CountOfCall &count = context->counts[of.count];
  const Quantized out =
      quantizedAt(context, of.out, of.k, fixed.tiles, count.number);
  forTokens(context, thread, count, of.gathers != 0,
            [&](int64_t i, int64_t token) QWEN_SPECIALISED_LAMBDA {
              const int32_t bad =
                  out.write(i, 0, of.k, fixed.scratch,
                            [&](int8_t *q, float *d, int32_t *sums)
                                QWEN_SPECIALISED_LAMBDA {
                                  return fixed.kernel(in.of(token), w, of.k,
                                                      of.eps, q, d, sums);
                                });
              flag(count, i, of.op, bad);
            });
}

QWEN_ENTRY(HiddenRows, RmsNorm) {
  const RmsNormArguments of = arguments;
  const float *w = weightsAt(context, of.weight);
  const Floats in = floatsAt(context, of.in);
  const CountOfCall &count = context->counts[of.count];
  forTokens(context, thread, count, of.gathers != 0,
            [&](int64_t i, int64_t token) QWEN_SPECIALISED_LAMBDA {
              float *y = context->hidden + i * of.k;
              fixed.norm(in.of(token), w, of.k, of.eps, y);
              flag(count, i, of.op, fixed.check(y, of.k));
            });
}

QWEN_ENTRY(HeadNorm, RmsNorm) {
  const RmsNormArguments of = arguments;
  const float *w = weightsAt(context, of.weight);
  const Floats in = floatsAt(context, of.in), out = floatsAt(context, of.out);
  forTokens(context, thread, context->counts[of.count], of.gathers != 0,
            [&](int64_t i, int64_t token) QWEN_SPECIALISED_LAMBDA {
              for (int64_t head = 0; head < of.k; head += fixed.headDim)
                fixed.kernel(in.of(token) + head, w, fixed.headDim, of.eps,
                             out.of(i) + head);
            });
}

QWEN_ENTRY(Quantize, Quantize) {
  const QuantizeArguments of = arguments;
  const Floats in = floatsAt(context, of.in);
  const CountOfCall &count = context->counts[of.count];
  const Quantized out =
      quantizedAt(context, of.out, of.k, fixed.tiles, count.number);
  forUnits(context, thread, count.number,
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             const int32_t bad = out.write(
                 token, 0, of.k, fixed.scratch,
                 [&](int8_t *q, float *d, int32_t *sums)
                     QWEN_SPECIALISED_LAMBDA {
                       return fixed.kernel(in.of(token), of.k, q, d, sums);
                     });
             flag(count, token, of.op, bad);
           });
}

/// Writes the turned values x of a token to y. `temporary` has k values.
template <typename Kernel>
QWEN_SPECIALISED static void
turnToken(const TurnArguments &of, const float *rotation, const Kernel &kernel,
          const float *x, float *temporary, float *y) {
  const float *factor = rotation + of.k;
  if (of.back) {
    kernel(x, factor, of.k, y);
    for (int64_t i = 0; i < of.k; ++i)
      y[i] *= rotation[i];
    return;
  }
  for (int64_t i = 0; i < of.k; ++i)
    temporary[i] = x[i] * rotation[i];
  kernel(temporary, factor, of.k, y);
}

QWEN_ENTRY(TurnF32, Turn) {
  const TurnArguments of = arguments;
  const float *rotation = weightsAt(context, of.rotation);
  const Floats in = floatsAt(context, of.in), out = floatsAt(context, of.out);
  forUnits(context, thread, context->counts[of.count].number,
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             turnToken(of, rotation, fixed.kernel, in.of(token), fixed.scratch,
                       out.of(token));
           });
}

QWEN_ENTRY(TurnQ8, Turn) {
  const TurnArguments of = arguments;
  const float *rotation = weightsAt(context, of.rotation);
  const Floats in = floatsAt(context, of.in);
  float *turned = fixed.scratch + alignTo(of.k, kActivationBlock);
  const CountOfCall &count = context->counts[of.count];
  const Quantized out =
      quantizedAt(context, of.out, of.k, fixed.tiles, count.number);
  forUnits(context, thread, count.number,
           [&](int64_t token) QWEN_SPECIALISED_LAMBDA {
             turnToken(of, rotation, fixed.kernel, in.of(token), fixed.scratch,
                       turned);
             // The values before the last turn are no longer needed.
             const int32_t bad =
                 out.write(token, 0, of.k, fixed.scratch,
                           [&](int8_t *q, float *d,
                               int32_t *sums) QWEN_SPECIALISED_LAMBDA {
                             return fixed.quantize(turned, of.k, q, d, sums);
                           });
             flag(count, token, of.op, bad);
           });
}

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// Calls compute(token, first, size) for the thread's share of the blocks of n
/// values of each of `tokens` tokens. A call takes blocks of one token, up to
/// kStackValues: `size` values from value `first` on.
template <typename Compute>
QWEN_SPECIALISED static void forBlocks(const Context *context, int32_t thread,
                                       int64_t tokens, int64_t n,
                                       const Compute &compute) {
  __builtin_assume(n > 0);
  const int64_t blocks = ceilDiv(n, kActivationBlock);
  const Range range = shareOf(context, thread, tokens * blocks);
  for (int64_t unit = range.begin; unit < range.end;) {
    const int64_t token = unit / blocks, block = unit % blocks;
    const int64_t count = std::min(
        {range.end - unit, blocks - block, kStackValues / kActivationBlock});
    const int64_t first = block * kActivationBlock;
    compute(token, first, std::min(n - first, count * kActivationBlock));
    unit += count;
  }
}

/// Calls compute(in, gate, size, result) for the blocks of each call.
template <typename Compute>
QWEN_SPECIALISED static void gateF32(const Context *context, int32_t thread,
                                     const GateArguments &of,
                                     const Compute &compute) {
  const Floats in = floatsAt(context, of.in), gate = floatsAt(context, of.gate),
               out = floatsAt(context, of.out);
  forBlocks(context, thread, context->counts[of.count].number, of.k,
            [&](int64_t token, int64_t first, int64_t size)
                QWEN_SPECIALISED_LAMBDA {
                  compute(in.of(token) + first, gate.of(token) + first, size,
                          out.of(token) + first);
                });
}

/// Calls compute(token, first, size, codes, scales, sums) for the blocks of
/// each call, and flags the token if that returns not 0.
template <typename Arguments, typename Compute>
QWEN_SPECIALISED static void
blocksQ8(const Context *context, int32_t thread, const Arguments &of,
         const TokenTiles &tiles, const Compute &compute) {
  const CountOfCall &count = context->counts[of.count];
  const Quantized out = quantizedAt(context, of.out, of.k, tiles, count.number);
  forBlocks(
      context, thread, count.number, of.k,
      [&](int64_t token, int64_t first, int64_t size) QWEN_SPECIALISED_LAMBDA {
        writeBlocks(count, of.op, out, token, first, size,
                    [&](int8_t *q, float *d, int32_t *sums)
                        QWEN_SPECIALISED_LAMBDA {
                          return compute(token, first, size, q, d, sums);
                        });
      });
}

/// Likewise calls compute(in, gate, size, codes, scales, sums).
template <typename Compute>
QWEN_SPECIALISED static void
gateQ8(const Context *context, int32_t thread, const GateArguments &of,
       const TokenTiles &tiles, const Compute &compute) {
  const Floats in = floatsAt(context, of.in), gate = floatsAt(context, of.gate);
  blocksQ8(context, thread, of, tiles,
           [&](int64_t token, int64_t first, int64_t size, int8_t *q, float *d,
               int32_t *s) QWEN_SPECIALISED_LAMBDA {
             return compute(in.of(token) + first, gate.of(token) + first, size,
                            q, d, s);
           });
}

/// Calls compute(in, gate, size, gated) and quantize(gated, size, codes,
/// scales, sums) for the blocks of each call.
template <typename Compute, typename Quantize>
QWEN_SPECIALISED static void
gateThenQuantize(const Context *context, int32_t thread,
                 const GateArguments &of, const TokenTiles &tiles,
                 const Compute &compute, const Quantize &quantize) {
  gateQ8(context, thread, of, tiles,
         [&](const float *x, const float *gate, int64_t size, int8_t *q,
             float *d, int32_t *s) QWEN_SPECIALISED_LAMBDA {
           float gated[kStackValues];
           compute(x, gate, size, gated);
           return quantize(gated, size, q, d, s);
         });
}

QWEN_ENTRY(SwiGluF32, Gate) {
  const GateArguments of = arguments;
  gateF32(context, thread, of,
          [&](const float *x, const float *gate, int64_t size, float *y)
              QWEN_SPECIALISED_LAMBDA { fixed.kernel(gate, x, size, y); });
}

QWEN_ENTRY(SwiGluQ8, Gate) {
  const GateArguments of = arguments;
  if (isGateInProduct(fixed.inProduct, context->counts[of.count].number))
    return;
  gateQ8(context, thread, of, fixed.tiles,
         [&](const float *x, const float *gate, int64_t size, int8_t *q,
             float *d, int32_t *s) QWEN_SPECIALISED_LAMBDA {
           return fixed.kernel(gate, x, size, q, d, s);
         });
}

QWEN_ENTRY(SwiGluHadamardQ8, Gate) {
  const GateArguments of = arguments;
  gateThenQuantize(
      context, thread, of, fixed.tiles,
      [&](const float *x, const float *gate, int64_t size, float *y)
          QWEN_SPECIALISED_LAMBDA { fixed.kernel(gate, x, size, y); },
      fixed.transform);
}

QWEN_ENTRY(GateF32, Gate) {
  const GateArguments of = arguments;
  gateF32(context, thread, of, fixed.kernel);
}

QWEN_ENTRY(GateQ8, Gate) {
  const GateArguments of = arguments;
  gateThenQuantize(context, thread, of, fixed.tiles, fixed.kernel,
                   fixed.quantize);
}

/// Calls compute(in, size, out) for the blocks of each call.
template <typename Compute>
QWEN_SPECIALISED static void mapF32(const Context *context, int32_t thread,
                                    const QuantizeArguments &of,
                                    const Compute &compute) {
  const Floats in = floatsAt(context, of.in), out = floatsAt(context, of.out);
  forBlocks(context, thread, context->counts[of.count].number, of.k,
            [&](int64_t token, int64_t first, int64_t size)
                QWEN_SPECIALISED_LAMBDA {
                  compute(in.of(token) + first, size, out.of(token) + first);
                });
}

/// Calls compute(in, size, mapped) and quantize(mapped, size, codes, scales,
/// sums) for the blocks of each call.
template <typename Compute, typename Quantize>
QWEN_SPECIALISED static void
mapThenQuantize(const Context *context, int32_t thread,
                const QuantizeArguments &of, const TokenTiles &tiles,
                const Compute &compute, const Quantize &quantize) {
  const Floats in = floatsAt(context, of.in);
  blocksQ8(context, thread, of, tiles,
           [&](int64_t token, int64_t first, int64_t size, int8_t *q, float *d,
               int32_t *s) QWEN_SPECIALISED_LAMBDA {
             float mapped[kStackValues];
             compute(in.of(token) + first, size, mapped);
             return quantize(mapped, size, q, d, s);
           });
}

QWEN_ENTRY(Hadamard, Quantize) {
  const QuantizeArguments of = arguments;
  mapF32(context, thread, of, fixed.kernel);
}

#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  QWEN_ENTRY(Map##F32, Quantize) {                                             \
    const QuantizeArguments of = arguments;                                    \
    mapF32(context, thread, of, fixed.kernel);                                 \
  }                                                                            \
  QWEN_ENTRY(Map##Q8, Quantize) {                                              \
    const QuantizeArguments of = arguments;                                    \
    mapThenQuantize(context, thread, of, fixed.tiles, fixed.kernel,            \
                    fixed.quantize);                                           \
  }
#include "qwen/ABI/ElementMaps.def"

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// A unit is a number of the result.
QWEN_ENTRY(Count, Count) {
  const CountArguments of = arguments;
  const bool ofCall = of.ids < 0;
  const int32_t *ids =
      ofCall ? context->tokenIds : arenaAt<int32_t>(context, of.ids);
  const int64_t n = ofCall ? context->tokens() : of.n;
  int32_t *out = arenaAt<int32_t>(context, of.out);
  forUnits(context, thread, unitsAt(context, of.limit, of.k),
           [&](int64_t id) QWEN_SPECIALISED_LAMBDA {
             int32_t count = 0;
             for (int64_t i = 0; i < n; ++i)
               count += ids[i] == id;
             out[id] = count;
           });
}
