//===- DriverABI.h - Structs between forward and the driver -----*- C++ -*-===//
//
// DriverABI.def expanded into structs. The compiler writes them, field by field
// in their order, and the driver reads them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_DRIVERABI_H
#define QWEN_ABI_DRIVERABI_H

#include "qwen/ABI/ActivationLayouts.h"
#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"

#include <algorithm>
#include <limits>

namespace qwen {

/// A number of one kind. It converts to an integer and to no other kind.
template <typename Kind> class Number {
public:
  constexpr Number() = default;
  constexpr explicit Number(int64_t value) : value(value) {}
  constexpr operator int64_t() const { return value; }

private:
  int64_t value = 0;
};

/// Bytes from the base of the arena or of a weight image; -1: absent.
using ArenaOffset = Number<struct ArenaOffsetKind>;
using WeightOffset = Number<struct WeightOffsetKind>;
/// Index in Context::images.
using ImageId = Number<struct ImageIdKind>;
/// Bytes from the begin of a page or of a state to a layer.
using CacheOffset = Number<struct CacheOffsetKind>;
/// Index in Context::counts.
using CountId = Number<struct CountIdKind>;
/// Index in Context::caches.
using CacheId = Number<struct CacheIdKind>;
/// Elements from one token to the next.
using Stride = Number<struct StrideKind>;
/// How many bytes, values, heads, panels, tokens and experts.
using Bytes = Number<struct BytesKind>;
using Length = Number<struct LengthKind>;
using Heads = Number<struct HeadsKind>;
using Panels = Number<struct PanelsKind>;
using Tokens = Number<struct TokensKind>;
using Experts = Number<struct ExpertsKind>;
/// A value of ActivationLayout.
using LayoutId = Number<struct LayoutIdKind>;
/// Index in the manifest's "ops".
using OpId = Number<struct OpIdKind>;
/// 0 or 1.
using Flag = Number<struct FlagKind>;

/// Where a weight lies.
struct WeightPlace {
  ImageId image;
  WeightOffset offset;
};
/// Where a value lies in the arena: f32, with padding between tokens.
struct FloatPlace {
  ArenaOffset at;
  Stride stride;
};
/// The same of a value that may be quantized: then int8, with scales and sums.
struct BlockPlace {
  ArenaOffset at;
  Stride stride;
  ArenaOffset scales, sums;
};
// The compiler writes their fields as if the struct outside had them.
static_assert(sizeof(WeightPlace) == size_t{2} * 8 &&
              sizeof(FloatPlace) == size_t{2} * 8 &&
              sizeof(BlockPlace) == size_t{4} * 8);

/// How many of a call's tokens a kernel multiplies: the largest multiple of
/// `multiple`, and all if at least `rest` are behind it (0: never); none if the
/// call has fewer than `least`. Their activations lie as `layout` says.
struct TokenTiles {
  LayoutId layout{};
  Tokens multiple = Tokens(1), least = Tokens(kNever), rest{};

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  constexpr bool isTiled() const { return layoutInfo().tokens > 1; }
  constexpr int64_t take(int64_t tokens) const {
    const int64_t behind = tokens % multiple;
    const bool takesAll = rest > 0 && behind >= rest;
    return tokens < least ? 0 : takesAll ? tokens : tokens - behind;
  }
  /// How many of the call's tokens lie in tiles: the first ones.
  constexpr int64_t inTiles(int64_t tokens) const {
    return isTiled() ? take(tokens) : 0;
  }
  constexpr ActivationLayoutInfo layoutInfo() const {
    return activationLayout(static_cast<ActivationLayout>(int64_t{layout}));
  }
  /// The tokens that this and `other` multiply, which have one layout.
  constexpr TokenTiles both(const TokenTiles &other) const {
    return {layout, std::max(multiple, other.multiple),
            std::max(least, other.least), std::max(rest, other.rest)};
  }
};

/// The most values along K of activations in tiles. Kernels keep sums of two
/// tiles of them on the stack.
inline constexpr int64_t kMostTiledLength = 32768;

/// A kernel of a product, and the tokens that it multiplies.
template <typename Fn> struct DriverTile {
  Fn *kernel;
  TokenTiles tokens;
};

/// What an instance fixes of a product. `cached` is the number of values along
/// K of the panels that fit in a core's cache, and a kernel takes at least
/// `least` panels at a time. `reused` is the number of values along K of the
/// tokens that a kernel takes at a time, where it takes at least its M; 0: all
/// tokens. `together` panels share the work of a kernel on activations before
/// it multiplies. `tiles` come in the order in which they take tokens: the
/// GEMM, then the others from the largest M to 1.
template <typename Fn> struct ProductInstance {
  Length cached;
  Panels least;
  Length reused;
  Panels together;
  const DriverTile<Fn> *tiles;
  int64_t tileCount;
};

/// The most tokens of a call whose products of a block of gate and up stay in a
/// core's second cache.
inline constexpr int64_t kMostGateTokens = 512;
/// Floats of the products of a block of gate and up of `tokens` tokens.
constexpr int64_t gateScratch(int64_t tokens) {
  return 2 * kActivationBlock * std::min(tokens, kMostGateTokens);
}
/// Whether the product before a SwiGLU computes it too, and keeps its results
/// in a cache. It does so in calls of at most kMostGateTokens tokens that have
/// tokens in tiles.
constexpr bool isGateInProduct(const TokenTiles &tiles, int64_t tokens) {
  return tokens <= kMostGateTokens && tiles.inTiles(tokens) > 0;
}

#define QWEN_ARGUMENTS(Name, Fields)                                           \
  struct Name##Arguments {                                                     \
    Fields                                                                     \
  };
#define QWEN_DRIVER(Function, Reads, Fields)                                   \
  struct Function##Instance {                                                  \
    Fields                                                                     \
  };
// NOLINTBEGIN(bugprone-macro-parentheses): declarations
#define QWEN_FIELD(Type, name) Type name;
#define QWEN_KERNEL(Op, name) Op##Fn *name;
#define QWEN_PRODUCT(Op) ProductInstance<Op##Fn> product;
#define QWEN_SCRATCH(name) float *name;
// NOLINTEND(bugprone-macro-parentheses)
#include "qwen/ABI/DriverABI.def"

/// The position by which frequency `i` of a token with three rotates: 0, time;
/// 1, height; 2, width. `times`, `heights` and `widths` frequencies rotate by
/// each: one after another, or interleaved as Qwen3-VL's `mrope_interleaved`.
constexpr int64_t ropeAxis(int64_t i, int64_t times, int64_t heights,
                           int64_t widths, bool interleaved) {
  if (!interleaved)
    return i < times ? 0 : i < times + heights ? 1 : 2;
  const int64_t axis = i % 3;
  return i < 3 * (axis == 1 ? heights : widths) ? axis : 0;
}

/// Floats of `scratch` of an append, with or without `headNorm`.
constexpr int64_t appendScratch(int64_t headDim, bool hasHeadNorm = false) {
  return hasHeadNorm ? 2 * headDim : headDim;
}

/// Floats of one state (M, L, O) of attention for `queries` queries.
constexpr int64_t attentionState(int64_t queries, int64_t headDim) {
  return 2 * alignTo(queries, kStateQueries) + queries * headDim;
}
/// Floats of `scratch` of attention: rotated queries, scores of a page, in
/// whose place are then weights, and two states. Each starts at a multiple
/// of 16. With `headNorm` it has headDim floats behind these.
constexpr int64_t attentionScratch(int64_t groupQueries, int64_t headDim,
                                   int64_t blockTokens) {
  const int64_t queries = groupQueries * blockTokens;
  return alignTo(queries * headDim, 16) + queries * kPageTokens +
         2 * alignTo(attentionState(queries, headDim), 16);
}

/// Tokens of a unit of attention over the call. A unit lays out each page once,
/// which takes a few multiplications a value: so it has many queries.
constexpr int64_t callBlockTokens(int64_t groupQueries) {
  return groupQueries < 128 ? 128 / groupQueries : 1;
}
/// Floats of `scratch` of attention over the call: the same, a page of keys and
/// values, and a rotated key.
constexpr int64_t callAttentionScratch(int64_t groupQueries, int64_t headDim,
                                       int64_t blockTokens) {
  return attentionScratch(groupQueries, headDim, blockTokens) +
         (2 * kPageTokens + 1) * headDim;
}

/// Tokens of an expert that the driver multiplies together.
inline constexpr int64_t kExpertTokens = 32;
/// Floats of their results that it keeps: two for each value of a block of
/// activations.
inline constexpr int64_t kExpertValues = kExpertTokens * 2 * kActivationBlock;
/// The most values that ExpertsDown adds to the sum of experts.
inline constexpr int64_t kMaxAddends = 2;
/// Floats that hold activations of `k` values of `tokens` tokens in blocks, in
/// any layout: codes, scales and sums. With a multiple of 16 tokens, each part
/// starts at a multiple of 16.
constexpr int64_t quantizedFloats(int64_t k, int64_t tokens) {
  return tokens * (alignTo(k, kActivationBlock) / 4 +
                   ceilDiv(k, kActivationBlock) + k / kGroup);
}
/// Floats of `scratch` of experts: results, and activations of `k` values in
/// blocks or in f32.
constexpr int64_t expertsScratch(int64_t k, bool isInBlocks) {
  return kExpertValues +
         (isInBlocks ? quantizedFloats(k, kExpertTokens) : kExpertTokens * k);
}

/// Floats of `scratch` of the delta rule: the queries and keys of two tokens.
constexpr int64_t deltaRuleScratch(int64_t keyDim) { return 4 * keyDim; }

} // namespace qwen

#endif // QWEN_ABI_DRIVERABI_H
