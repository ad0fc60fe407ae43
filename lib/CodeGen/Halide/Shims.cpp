//===- Shims.cpp - Halide's functions behind C signatures -----------------===//
//
// A shim has the C signature of a kind of kernel. It fills Halide's buffers and
// calls Halide's function, whose parameters Heads.cpp and Tokens.cpp give. The
// build compiles this file to bitcode; BitcodeKernels.cpp links a shim to each
// kernel and has LLVM inline Halide's function into it.
//
//===----------------------------------------------------------------------===//

#include "qwen/ABI/KernelOps.h"

#include "HalideRuntime.h"

using namespace qwen;

#define QWEN_INLINE [[gnu::always_inline]] inline

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

namespace {
/// Extent and stride are in elements.
struct Dimension : halide_dimension_t {
  QWEN_INLINE Dimension(int64_t extent, int64_t stride = 1)
      : halide_dimension_t(0, static_cast<int32_t>(extent),
                           static_cast<int32_t>(stride)) {}
};

/// A buffer for the call in whose arguments it stands. Halide's code is
/// compiled without assertions, so it reads nothing but host and dim; the other
/// fields stay unset. The dimensions are not a member: LLVM keeps a struct with
/// a pointer into itself in memory.
class Buffer {
public:
  QWEN_INLINE explicit Buffer(const void *data) {
    buffer.host = static_cast<uint8_t *>(const_cast<void *>(data));
  }
  template <size_t N>
  QWEN_INLINE Buffer(const void *data, Dimension (&&dimensions)[N])
      : Buffer(data) {
    buffer.dim = dimensions;
  }
  QWEN_INLINE operator halide_buffer_t *() { return &buffer; }

private:
  halide_buffer_t buffer;
};
} // namespace

QWEN_INLINE static int32_t narrow(int64_t size) {
  return static_cast<int32_t>(size);
}

/// Groups of `k` values.
QWEN_INLINE static int32_t groupsOf(int64_t k) {
  return static_cast<int32_t>(static_cast<uint64_t>(k) / kGroup);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

using B = halide_buffer_t *;

// qwenShim<Op>, and for a kernel that reads a format qwenShim<Op><Format>,
// calls qwenHalide<Op>, or qwenHalide<Op><Format>.
#define QWEN_DECLARE_MLIR(Op)
#define QWEN_DECLARE_Cpp(Op)
#define QWEN_DECLARE_Halide(Op) extern "C" Op##Fn qwenShim##Op;
#define QWEN_KERNEL_OP(Op, Function, Provider, ...) QWEN_DECLARE_##Provider(Op)
#include "qwen/ABI/KernelOps.def"

extern "C" {
int qwenHalideRopeTable(int32_t position, B invFreq, B cos, B sin);
int qwenHalideRmsNormF32(B x, B w, int32_t groups, float eps, B y);
int qwenHalideRmsNormQ8(B x, B w, int32_t groups, float eps, B q, B d, B sums,
                        B flag);
int qwenHalideQuantizeQ8(B x, int32_t groups, B q, B d, B sums, B flag);
int qwenHalideSwiGluF32(B gate, B up, B y);
int qwenHalideSwiGluQ8(B gate, B up, int32_t groups, B q, B d, B sums, B flag);
int qwenHalideRope(B x, B cos, B sin, int32_t half, B y);
int qwenHalideNormRope(B x, B w, B cos, B sin, int32_t half, float eps, B y);
int qwenHalideFinishAttention(B o, float l, B y);
int qwenHalideCheckFinite(B x, int32_t n, B flag);
}

void qwenShimRopeTable(int32_t position, const float *invFreq, int64_t half,
                       float *cos, float *sin) {
  qwenHalideRopeTable(position, Buffer(invFreq, {half}), Buffer(cos, {half}),
                      Buffer(sin, {half}));
}

void qwenShimRmsNormF32(const float *x, const float *w, int64_t k, float eps,
                        float *y) {
  const int32_t groups = groupsOf(k);
  qwenHalideRmsNormF32(Buffer(x, {kGroup, {groups, kGroup}}),
                       Buffer(w, {kGroup, {groups, kGroup}}), groups, eps,
                       Buffer(y, {kGroup, {groups, kGroup}}));
}

int32_t qwenShimRmsNormQ8(const float *x, const float *w, int64_t k, float eps,
                          int8_t *q, float *d, int32_t *sums) {
  const int32_t groups = groupsOf(k);
  int32_t flag;
  qwenHalideRmsNormQ8(Buffer(x, {kGroup, {groups, kGroup}}),
                      Buffer(w, {kGroup, {groups, kGroup}}), groups, eps,
                      Buffer(q, {kGroup, {groups, kGroup}}),
                      Buffer(d, {ceilDiv(k, kActivationBlock)}),
                      Buffer(sums, {groups}), Buffer(&flag));
  return flag;
}

int32_t qwenShimQuantizeQ8(const float *x, int64_t k, int8_t *q, float *d,
                           int32_t *sums) {
  const int32_t groups = groupsOf(k);
  int32_t flag;
  qwenHalideQuantizeQ8(Buffer(x, {kGroup, {groups, kGroup}}), groups,
                       Buffer(q, {kGroup, {groups, kGroup}}),
                       Buffer(d, {ceilDiv(k, kActivationBlock)}),
                       Buffer(sums, {groups}), Buffer(&flag));
  return flag;
}

void qwenShimSwiGluF32(const float *gate, const float *up, int64_t n,
                       float *y) {
  qwenHalideSwiGluF32(Buffer(gate, {n}), Buffer(up, {n}), Buffer(y, {n}));
}

int32_t qwenShimSwiGluQ8(const float *gate, const float *up, int64_t n,
                         int8_t *q, float *d, int32_t *sums) {
  const int32_t groups = groupsOf(n);
  int32_t flag;
  qwenHalideSwiGluQ8(Buffer(gate, {kGroup, {groups, kGroup}}),
                     Buffer(up, {kGroup, {groups, kGroup}}), groups,
                     Buffer(q, {kGroup, {groups, kGroup}}),
                     Buffer(d, {ceilDiv(n, kActivationBlock)}),
                     Buffer(sums, {groups}), Buffer(&flag));
  return flag;
}

void qwenShimRope(const float *x, const float *cos, const float *sin,
                  int64_t half, float *y) {
  qwenHalideRope(Buffer(x, {2 * half}), Buffer(cos, {half}),
                 Buffer(sin, {half}), narrow(half),
                 Buffer(y, {half, {2, half}}));
}

void qwenShimNormRope(const float *x, const float *w, const float *cos,
                      const float *sin, int64_t half, float eps, float *y) {
  qwenHalideNormRope(Buffer(x, {2 * half}), Buffer(w, {2 * half}),
                     Buffer(cos, {half}), Buffer(sin, {half}), narrow(half),
                     eps, Buffer(y, {half, {2, half}}));
}

void qwenShimFinishAttention(const float *o, float l, int64_t headDim,
                             float *y) {
  qwenHalideFinishAttention(Buffer(o, {headDim}), l, Buffer(y, {headDim}));
}

int32_t qwenShimCheckFinite(const float *x, int64_t n) {
  int32_t flag;
  qwenHalideCheckFinite(Buffer(x, {n}), narrow(n), Buffer(&flag));
  return flag;
}

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

/// Offsets of panels do not fit Halide's int32, those within a panel do.
template <WeightFormat Format, typename Function>
QWEN_INLINE static void embed(Function *halide, const uint8_t *weights,
                              int32_t id, int64_t k, float *out) {
  const auto row = static_cast<uint32_t>(id);
  const int64_t output = row % kPanelOutputs;
  const uint8_t *panel = weights + row / kPanelOutputs * panelBytes(Format, k);
  constexpr int64_t bits = codingOf(Format).bits;
  if constexpr (!isQuantized(Format)) {
    halide(Buffer(panel + output * (bits / 8), {{k, kPanelOutputs}}),
           Buffer(out, {k}));
  } else {
    constexpr int64_t block = weightBlock(Format),
                      blockBytes = panelBlockBytes(Format),
                      numbers = scalesOf(Format).numbers,
                      rowBytes = numbers * panelSubScaleBytes(Format),
                      chunks = codeField(bits, 0).bits, parts = 8 / chunks;
    const int64_t blocks = ceilDiv(k, block);
    const auto call = [&](auto... rows) {
      // A group has a chunk for each bit of a code.
      halide(
          Buffer(panel + output * 2,
                 {{numbers, kPanelOutputs}, {blocks, blockBytes / 2}}),
          rows...,
          Buffer(panel + panelHeaderBytes(Format) + output * 4,
                 {4,
                  {bits, 4 * kPanelOutputs},
                  {block / kGroup, panelGroupBytes(Format)},
                  {blocks, blockBytes}}),
          Buffer(out,
                 {4, {chunks, 4}, {parts, 4 * chunks}, {groupsOf(k), kGroup}}));
    };
    if constexpr (rowBytes == 0)
      call();
    else
      call(static_cast<B>(Buffer(
          panel + panelNumberBytes(Format) + output,
          {{rowBytes / kPanelOutputs, kPanelOutputs}, {blocks, blockBytes}})));
  }
}

/// What Halide's function takes: the values and the result, or the headers'
/// numbers, the rows of sub-blocks, codes and the result.
template <int Buffers> struct EmbedArguments;
template <> struct EmbedArguments<2> {
  using Fn = int(B, B);
};
template <> struct EmbedArguments<3> {
  using Fn = int(B, B, B);
};
template <> struct EmbedArguments<4> {
  using Fn = int(B, B, B, B);
};

#define QWEN_WEIGHT_FORMAT(Id, ...)                                            \
  extern "C" EmbedArguments<2 + isQuantized(WeightFormat::Id) +                \
                            scalesOf(WeightFormat::Id).hasSubBlocks()>::Fn     \
      qwenHalideEmbed##Id;                                                     \
  extern "C" void qwenShimEmbed##Id(const uint8_t *weights, int32_t id,        \
                                    int64_t k, float *out) {                   \
    embed<WeightFormat::Id>(qwenHalideEmbed##Id, weights, id, k, out);         \
  }
#include "qwen/ABI/WeightFormats.def"
