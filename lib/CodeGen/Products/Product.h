//===- Product.h - The function of a product with a packed matrix -*- C++ -*-=//
//
// The parts that all orders of products with a matrix share: the function of a
// kernel, its arguments, addresses in them, and the loops over panels and
// tiles. A product with quantized weights has three more parts: Unpack.h turns
// codes into bytes, Dot.h multiplies bytes, Scaling.h turns dots into floats.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H

#include "Dot.h"
#include "Scaling.h"
#include <bit>

namespace qwen {

/// 1.5 * 2^23. An i32 below 2^22 in magnitude, added to its bits, gives the
/// float that is as much larger: a dot that starts from these bits becomes a
/// float by one subtraction, which is exact and gives +0 for 0. Arm's
/// conversion takes the slots of two.
inline constexpr float kMagic = 12582912.0f;
inline constexpr int32_t kMagicBits = std::bit_cast<int32_t>(kMagic);

/// The float of dots that started from the bits of `magic`.
inline Value minusMagic(ProductBuilder &b, Value dots, float magic = kMagic) {
  const auto type = cast<VectorType>(dots.getType()).clone(b.f32);
  return b.subF(b.bitcast(type, dots), b.zeros(type, magic));
}

/// Bytes of a chunk: 4 values of each output.
inline constexpr int64_t kChunkBytes = kPanelOutputs * 4;

/// The groups [first, last), at most `most`. A loop takes `each` of them an
/// iteration. Where `each` is `most`, all groups are there and need no loop.
struct GroupSpan {
  Value first, last;
  int64_t each, most = kBlockGroups;
};

/// A panel and the address of its weights.
struct Panel {
  Value number, weights;
};

/// One kernel, the function that is made of it, and its arguments.
struct Product {
  /// Starts the function in `module`. Bytes of quantized formats are of `form`.
  Product(const KernelInfo &kernel, ModuleOp module, ByteForm form);

  /// Bytes of a panel of the matrix.
  Value panelStride();
  /// Groups of a token.
  Value groups() { return b.div(k, kGroup); }
  /// Blocks of a token's activations.
  Value activationBlocks() {
    return b.div(b.add(k, kActivationBlock - 1), kActivationBlock);
  }
  /// The number of the block of weights that group `g` belongs to.
  Value blockOf(Value g) { return b.div(g, blockGroups); }
  /// The header of block `block` of the panel at `panel`.
  Value headerOf(Value panel, Value block) {
    return b.at(panel, block, panelBlockBytes(format));
  }
  /// The chunks of group `inBlock` of the block with this header.
  Value chunksOf(Value header, Value inBlock) {
    return b.at(b.at(header, panelHeaderBytes(format)), inBlock,
                panelGroupBytes(format));
  }
  /// Number `number` of this header for the `lanes` outputs of vector `v`
  /// behind `output`, as f32.
  Value numberOf(Value header, int64_t number, Value output, int64_t lanes,
                 int64_t v) {
    Value numbers = b.at(b.at(header, number * kMinimumOffset), output, 2);
    return b.loadFloats(lanes, b.f16, b.at(numbers, b.scaled(v * lanes * 2)));
  }

  /// Calls body(g) for the groups of a span. `carried` has the values that
  /// iterations carry, and after the call the values that the last iteration
  /// gives.
  void overGroups(const GroupSpan &span, Values &carried,
                  function_ref<void(Value)> body) {
    overSteps(span, span.each, 1, carried, body);
  }
  /// Likewise, calls body(groups) for each part of a span of an activation
  /// block whose groups have the same scales.
  void overBlocks(const GroupSpan &span, Values &carried,
                  function_ref<void(const GroupSpan &)> body);

  /// The address of output `output` of a token in `matrix`, which is `out` or
  /// the residual.
  Value outputAt(Value matrix, Value token, Value output) {
    return b.at(matrix, b.add(b.mul(b.mul(token, ld), 4), b.mul(output, 4)));
  }
  /// The vectors of Scaling::scales() of the block with this header, for the
  /// `lanes` outputs of vector `v`.
  Values scaleVectors(Value header, int64_t lanes, int64_t v) {
    return scaling.scales(unpack->range.factor, [&](int64_t number) {
      return numberOf(header, number, b.integer(0), lanes, v);
    });
  }
  /// A dot that starts from `start`.
  Dot dotFrom(Value start) { return Dot(b, isa, unpack->range, start); }
  /// Adds bias and residual, one addition each, to a tile of sums, token by
  /// token in vectors of `lanes`, and stores it at the outputs from `output`.
  void store(Value output, ArrayRef<Value> tokens, Values tile, int64_t lanes);
  /// Makes store() bypass the caches in calls whose outputs, with those between
  /// them, have more than `bytes` bytes; 0: in no call. Vectors of outputs have
  /// the size of a cache line.
  void bypassCaches(int64_t bytes);
  /// Ends the function.
  void finish();

  const KernelInfo &kernel;
  const IsaInfo &isa;
  const WeightFormat format;
  /// Groups of a block of weights.
  const int64_t blockGroups = weightBlock(format) / kGroup;
  /// Whether sub-blocks of a block have integers, and dots of a group then.
  const bool divided = scalesOf(format).hasSubBlocks();
  const int64_t subDots = dotsOfGroup(format);
  /// Weights in floats have none.
  std::optional<Unpack> unpack;
  ProductBuilder b;
  const Scaling scaling{b, format};
  /// Arguments of LinearF32Fn (whose x is `q`) or LinearQ8Fn.
  Value q, d, sums, weights, bias, residual, out, m, k, ld, panelBegin,
      panelEnd;

private:
  /// Whether this call's outputs bypass the caches; null if no call's do.
  Value bypasses;

  void overSteps(const GroupSpan &span, int64_t each, int64_t step,
                 Values &carried, function_ref<void(Value)> body);
};

/// The loops of orders that have the sums of a tile of outputs and tokens in
/// registers:
///
///   for each panel of 16 outputs, or of each of several streams of them
///     for each tile of tokens and outputs
///       the order's sums along K
///       + bias, + residual, store
///
/// Where the length of vectors is known only at run time, a panel is a loop
/// over vectors of its outputs, whose last may have lanes without an output.
/// Panels are outermost so that each weight is read from memory once a call.
struct TileLoops {
  TileLoops(Product &p, int64_t tokens, int64_t vectors, int64_t streams = 0)
      : p(p), tileTokens(tokens), tileVectors(vectors), streams(streams) {}

  /// Calls body(panels, first output of the tile) for all tiles of outputs, and
  /// finishes the function.
  using PanelsBody = function_ref<void(ArrayRef<Panel>, Value)>;
  void overPanels(PanelsBody body);

  /// The sums of a tile, panel by panel, then token by token in vectors.
  using TileSumsOf = function_ref<Values(ArrayRef<Panel>, Value output,
                                         ArrayRef<Value> tokens)>;
  /// Stores the sums of all tiles. If `prefetches`, each tile first fetches the
  /// outputs that it stores.
  void overTiles(bool prefetches, TileSumsOf sumsOf);
  /// The tokens of the tile that begins with `first`.
  Values tokensFrom(Value first) {
    Values result;
    for (int64_t t = 0; t < tileTokens; ++t)
      result.push_back(p.b.add(first, t));
    return result;
  }
  /// Product::store() for a tile, and what fetches the lines of memory that it
  /// reads and writes.
  void prefetchStore(ArrayRef<Panel> panels, Value output,
                     ArrayRef<Value> tokens);
  void store(ArrayRef<Panel> panels, Value output, ArrayRef<Value> tokens,
             ArrayRef<Value> sums);

  Product &p;
  const int64_t tileTokens, tileVectors, streams, lanes = p.isa.lanes;
  /// Bytes of a panel, and from a panel to the one that the loops read next at
  /// its place.
  Value stride, nextPanel;
  /// Panels of a tile that is wider than a panel, or 1.
  const int64_t abreast =
      std::max<int64_t>(tileVectors * lanes / kPanelOutputs, 1);
  /// Vectors of outputs of a panel in the tile that is emitted now.
  int64_t vectors = tileVectors / abreast;

private:
  /// The number of a panel's output `output` in the matrix.
  Value outputOf(const Panel &panel, Value output) {
    return p.b.add(p.b.mul(panel.number, kPanelOutputs), output);
  }
  Value overTogether(Value first, int64_t count, bool neighbours,
                     PanelsBody body);
  void overVectors(ArrayRef<Value> numbers, PanelsBody body);
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H
