//===- TileSums.h - Dots of a tile to its sums along K ----------*- C++ -*-===//
//
// The loops of orders whose tiles add dots along K. The sums of a tile of
// outputs and tokens are
//
//   for each block of 128 activations
//     for each group of 32 along K
//       the dots of all tokens, which the order makes
//       scales, where each group has its own; integers of sub-blocks
//     scales, where the block shares them; the activations' scales
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_TILESUMS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_TILESUMS_H

#include "Product.h"
#include <functional>

namespace qwen {

/// The activations and panels of a tile.
struct Tile {
  /// Addresses of a token's quantized activations.
  struct Activations {
    Value q, d, sums;
  };
  ArrayRef<Panel> panels;
  /// Its first output and token.
  Value output, first;
  SmallVector<Activations> tokens;
  /// Number of accumulators.
  size_t size;
};

/// A block of weights, or a part of one, in all panels of a tile.
struct WeightBlock {
  /// Its headers, one in each panel.
  Values headers;
  /// Its first group.
  Value first;
};

/// One group of 32 in all panels of a tile.
struct Group {
  const WeightBlock &in;
  /// Its number along K, and its place in the block in units of `unit` bytes.
  Value number, place;
  int64_t unit;
  /// Addresses of each token's activations.
  Values q;
  /// start() gives the start value of dot `sub` of accumulator i, and use()
  /// takes its sum. A group has dotsOfGroup() dots.
  function_ref<Value(int64_t i, int64_t sub)> start;
  function_ref<void(int64_t i, int64_t sub, Value dot)> use;
  /// Null, or the sub-scales that dot `sub` of accumulator i is multiplied
  /// with, where TileSums::scalesDots.
  function_ref<Value(int64_t i, int64_t sub)> scale = nullptr;
};

/// Accumulator i of a tile is (panel * tokens + token) * vectors + vector.
/// Where an instruction multiplies two tokens (isa.dot.tokens), each 128 bits
/// of accumulator v of token 2p have two outputs of the lower half of vector v,
/// for tokens 2p and 2p + 1. Accumulator v of token 2p + 1 has two outputs of
/// the upper half.
class TileSums {
public:
  TileSums(TileLoops &loops, int64_t unroll, int64_t prefetch);

  /// Emits the dots of a group. Each order sets this function.
  std::function<void(const Group &)> addGroup;
  /// Integer `number` of sub-block `sub` of group g, in a panel of the tile,
  /// for each of its vectors. Orders whose tiles share these integers set it.
  std::function<Values(const WeightBlock &in, size_t panel, int64_t number,
                       Value g, int64_t sub)>
      subIntegers;
  /// t of each accumulator for a format with sub-blocks. Orders with code for
  /// all groups of a block at once set it.
  std::function<Values(Value block, const GroupSpan &span)> wholeBlock;
  /// Whether addGroup() multiplies dots with sub-scales, and these start from
  /// the sums of the groups before.
  bool scalesDots = false;
  /// Memory for the sums of a tile in a block, where registers are short; else
  /// null.
  Value heldSums;

  /// Memory for the sums of `tiles` tiles.
  Value sumsMemory(int64_t tiles) {
    return b.scratch(tiles * loops.tileTokens * loops.vectors * vectorBytes,
                     vectorBytes);
  }
  /// Makes this the tile that is emitted now.
  void begin(ArrayRef<Panel> panels, Value output, ArrayRef<Value> tokens);
  /// Emits the loops of orders whose tiles go along all of K.
  void emit();
  /// `totals` after activation blocks [first, last). Blocks before `whole` have
  /// all groups.
  Values addBlocks(Values totals, Value first, Value whole, Value last);
  /// Activation blocks of a token that have all groups.
  Value wholeBlocks() { return b.div(p.groups(), kBlockGroups); }

  // Parts of the dots of a group.

  /// The address of a group's first chunk in a panel.
  Value chunksOf(const Group &group, size_t panel);
  /// Vector `v` of a chunk of the group whose chunks begin at `chunks`.
  Value loadVector(Value chunks, int64_t chunk, int64_t v);
  /// The codes of vector `v` of a chunk, as Unpack takes them.
  Values codesOf(Value chunks, int64_t chunk, int64_t v) {
    return p.unpack->codes(
        b, chunk, [&](int64_t i, bool) { return loadVector(chunks, i, v); });
  }
  /// Activations 4 * step .. 4 * step + 3 of a group, as Dot takes them.
  Value activations(Value q, int64_t step);
  /// Fetches chunk `chunk` of a group whose chunks begin at `chunks`, and the
  /// chunk with its upper bits if no chunk before has fetched it.
  void prefetchChunk(Value chunks, int64_t chunk);
  /// Dot `sub` of accumulator `i` starts from value `i * p.subDots + sub`.
  Values startsOf(const Group &group);
  /// Gives the dots `sub` of a group to group.use(), in the order of the code.
  /// Start values that the dots lack are computed or loaded where they are
  /// added.
  void use(const Group &group, int64_t sub, MutableArrayRef<Dot> dots,
           bool lackStarts = true);
  /// Calls body(part) for the parts of codes that dot `sub` of a group takes.
  void overParts(int64_t sub, function_ref<void(int64_t)> body) const {
    const int64_t count = p.unpack->parts / p.subDots;
    for (int64_t part = sub * count; part < (sub + 1) * count; ++part)
      body(part);
  }

  // Parts of a block.

  /// The block of weights that activation block `block` is a part of, for
  /// formats with sub-blocks.
  WeightBlock subBlocks(Value block);
  /// t after the dots of accumulator `i` that started from correction().
  /// minimumSum(i) is what its minimum is multiplied with, as i32 or f32.
  Value scaled(const WeightBlock &in, int64_t i, Value dot,
               function_ref<Value(int64_t i)> minimumSum, Value t);

  Product &p;
  ProductBuilder &b = p.b;
  TileLoops &loops;
  /// The tile that is emitted now.
  Tile tile;
  const int64_t unroll, prefetchDistance;
  /// Bytes of a vector of outputs.
  const int64_t vectorBytes = 4 * loops.lanes;

  size_t tokenOf(int64_t i) const {
    return i / loops.vectors % loops.tileTokens;
  }
  size_t panelOf(int64_t i) const {
    return i / loops.vectors / loops.tileTokens;
  }
  VectorType floats() { return b.vector(loops.lanes, b.f32); }
  VectorType integers() { return b.vector(loops.lanes, b.i32); }

private:
  /// A scalar of each token of the tile: its scale, or a sum of activations.
  using OfToken = function_ref<Value(size_t token)>;

  void prefetch(Value line);
  void prefetchShare(Value block);
  WeightBlock blockOf(Value number, Value first, int64_t fetched);
  Value forToken(VectorType type, OfToken scalar, int64_t i);
  Value forOutputs(Value values, int64_t i);
  Value correction(OfToken activationSum, int64_t i);
  float magic(int64_t i) const;
  Value magicStart(Value g, int64_t i);
  bool startsFromMagic() const;
  bool hasMagicStarts() const { return magicStarts && !b.isScalable(); }
  Value activationSum(const Tile::Activations &token, Value g) {
    return b.load(b.i32, b.at(token.sums, g, 4));
  }
  Value floatSum(OfToken activationSum, int64_t i);
  Values addBlock(Value block, ValueRange totals, const GroupSpan &span);
  Values narrowSums(const GroupSpan &span);
  Values addWide(Value number, const GroupSpan &span, const Values &before);
  Values subBlockSums(Value block, const GroupSpan &span);
  Values subMinimums(const WeightBlock &in, const GroupSpan &span);
  Value subStartsOf(Value q);

  const bool pairs = p.isa.dot.tokens == 2;
  /// Memory for the start values of dots of sub-blocks of 16 biased bytes
  /// (subStartsOf), kActivationBlock bytes for each token of the tile; null for
  /// other formats.
  Value subStarts;
  /// Memory with copies of the magic number, from which dots of a single token
  /// start, for kStartGroups groups; null where dots have other start values.
  static constexpr int64_t kStartGroups = 8;
  Value magicStarts;
};

/// Emits the dots of a group where each tile unpacks the weights that it
/// multiplies. If `inTurn`, vectors of outputs process it one after the other.
void unpackedDots(TileSums &sums, const Group &group, bool inTurn);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_TILESUMS_H
