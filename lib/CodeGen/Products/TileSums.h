//===- TileSums.h - Dots of a tile to its sums along K ----------*- C++ -*-===//
//
// What the orders of tiles have in common: for the sums of a tile of outputs
// and tokens,
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

#include "Dot.h"
#include "Product.h"
#include <functional>

namespace qwen {

/// One group of 32 in several panels.
struct Group {
  /// Its number along K.
  Value number;
  size_t panels;
  /// The first output of the tile, and where the chunks begin in a panel.
  Value output;
  llvm::function_ref<Value(size_t panel)> chunks;
  /// Activations.
  llvm::ArrayRef<Value> q;
  /// start() gives the start value of dot `sub` of accumulator i, and use()
  /// takes its sum. A group has dotsOfGroup() dots.
  llvm::function_ref<Value(int64_t i, int64_t sub)> start;
  llvm::function_ref<void(int64_t i, int64_t sub, Value dot)> use;
  /// Null, or the sub-scales that dot `sub` of accumulator i is multiplied
  /// with, where TileSums::scalesDots.
  llvm::function_ref<Value(int64_t i, int64_t sub)> scale = nullptr;
};

/// The activations and panels of a tile.
struct Tile {
  /// Where quantized activations of a token are.
  struct Activations {
    Value q, d, sums;
  };
  llvm::ArrayRef<Panel> panels;
  /// Its first output and token.
  Value output, first;
  llvm::SmallVector<Activations> tokens;
  /// Number of accumulators.
  size_t size;
};

/// Where the sub-blocks of an activation block are.
struct SubBlocks {
  /// The headers of the block of weights, one in each panel.
  Values headers;
  /// The first group of the block of weights.
  Value first;
};

/// Accumulator i of a tile is (panel * tokens + token) * vectors + vector.
/// Where an instruction multiplies two tokens (isa.dot.tokens), each 128 bits
/// of accumulator v of token 2p have two outputs of the lower half of vector v,
/// for tokens 2p and 2p + 1; those of accumulator v of token 2p + 1 have two of
/// the upper half.
class TileSums {
public:
  TileSums(TileLoops &loops, int64_t unroll, int64_t prefetch);

  /// The order gives this function, which emits the dots of a group.
  std::function<void(const Group &)> addGroup;
  /// If tiles share the integers of sub-blocks: gives integer `number` of
  /// sub-block `sub` of group g, in a panel of the tile, for each of its
  /// vectors.
  std::function<Values(size_t panel, int64_t number, Value g, int64_t sub)>
      sharedIntegers;
  /// If the order has code for all groups of a block at once: gives t of each
  /// accumulator for a format with sub-blocks.
  std::function<Values(const Tile &tile, Value block, const GroupSpan &span)>
      wholeBlock;
  /// Whether addGroup() multiplies dots with sub-scales, and these start from
  /// the sums of the groups before.
  bool scalesDots = false;
  /// Memory for the sums of a tile in a block, where registers are short; else
  /// null.
  Value heldSums;

  /// Memory for the sums of `tiles` tiles.
  Value sumsMemory(int64_t tiles) {
    return b.scratch(tiles * loops.tokens * loops.vectors * vectorBytes,
                     vectorBytes);
  }
  Tile tileOf(llvm::ArrayRef<Panel> panels, Value output,
              llvm::ArrayRef<Value> tokens);
  /// Emits the loops of orders whose tiles go along all of K.
  void emit();
  /// The sums of a tile for each of its panels.
  llvm::SmallVector<Values> byPanel(const Tile &tile, const Values &totals);
  /// `totals` after activation blocks [first, last), of which those before
  /// `whole` have all groups.
  Values addBlocks(const Tile &tile, Values totals, Value first, Value whole,
                   Value last);
  /// Activation blocks of a token that have all groups.
  Value wholeBlocks() { return b.shiftRight(p.groups(), 2); }

  // Parts of the dots of a group.

  /// Vector `v` of a chunk of the group whose chunks begin at `chunks`.
  Value loadVector(Value chunks, int64_t chunk, int64_t v);
  /// Activations 4 * step .. 4 * step + 3 of a group, as Dot takes them.
  Value activations(Value q, int64_t step);
  /// Fetches the chunks of a group that begin at `chunks`, as far as those of
  /// step `chunk` are new.
  void prefetchChunk(Value chunks, int64_t chunk);
  /// Start value `i * subDots + sub` is that of dot `sub` of accumulator `i`.
  Values startsOf(const Group &group);
  /// Gives the dots `sub` of a group to group.use(), in the order of the code.
  /// Start values that the dots lack are computed or loaded where they are
  /// added.
  void use(const Group &group, int64_t sub, llvm::MutableArrayRef<Dot> dots,
           bool lackStarts = true);
  Dot dotFrom(Value start) { return Dot(b, p.isa, p.unpack->range, start); }
  /// Calls body(part) for the parts of codes that dot `sub` of a group takes.
  void overParts(int64_t sub, llvm::function_ref<void(int64_t)> body) const {
    const int64_t count = p.unpack->parts / subDots;
    for (int64_t part = sub * count; part < (sub + 1) * count; ++part)
      body(part);
  }

  // Parts of a block.

  Value headerOf(const Panel &panel, Value block) {
    return b.at(panel.weights, b.mul(block, panelBlockBytes(p.format)));
  }
  /// The sub-blocks of activation block `block`.
  SubBlocks subBlocks(const Tile &tile, Value block);
  /// t after the dots of accumulator `i` that started from correction().
  /// minimumSum(i) is what its minimum is multiplied with, as i32 or f32.
  Value scaled(Value dot, llvm::function_ref<Value(int64_t i)> minimumSum,
               Value header, const Tile &tile, int64_t i, Value t);

  Product &p;
  ProductBuilder &b = p.b;
  TileLoops &loops;
  const int64_t unroll, prefetchDistance;
  /// Bytes of a vector of outputs.
  const int64_t vectorBytes = 4 * loops.lanes;
  /// Dots of an accumulator in a group.
  const int64_t subDots = dotsOfGroup(p.format);

  size_t tokenOf(int64_t i) const { return i / loops.vectors % loops.tokens; }
  size_t panelOf(int64_t i) const { return i / loops.vectors / loops.tokens; }
  mlir::VectorType floats() { return b.vector(loops.lanes, b.getF32Type()); }
  mlir::VectorType integers() { return b.vector(loops.lanes, b.getI32Type()); }

private:
  /// Something of each token of the tile.
  using OfToken = llvm::function_ref<Value(size_t token)>;

  void prefetch(Value line);
  void prefetchShare(const Tile &tile, Value block);
  Value forToken(mlir::VectorType type, OfToken scalar, int64_t i);
  Value forOutputs(Value values, int64_t i);
  Value correction(OfToken activationSum, int64_t i);
  float magic(int64_t i) const;
  Value magicStart(Value g, int64_t i);
  bool startsFromMagic() const;
  bool hasMagicStarts() const { return magicStarts && !b.isScalable(); }
  Value activationSum(const Tile::Activations &token, Value g) {
    return b.load(b.getI32Type(), b.at(token.sums, b.mul(g, 4)));
  }
  Value floatSum(OfToken activationSum, int64_t i);
  Values startSums(Value zero, size_t count);
  Value sum(const Values &carried, mlir::VectorType type, int64_t i);
  Values allSums(const Values &carried, mlir::VectorType type, size_t count);
  void setSum(Values &carried, int64_t i, Value value);
  Values addBlock(const Tile &tile, Value block, ValueRange totals,
                  const GroupSpan &span);
  Values narrowSums(const Tile &tile, const GroupSpan &span);
  Values addWide(const Tile &tile, Value number, const GroupSpan &span,
                 const Values &before);
  Values subBlockSums(const Tile &tile, Value block, const GroupSpan &span);
  Values subMinimums(const Tile &tile, const SubBlocks &in,
                     const GroupSpan &span);
  Values subIntegersOf(const Tile &tile, const SubBlocks &in, size_t panel,
                       int64_t number, Value g, int64_t sub);
  Value subStartsOf(const IsaInfo &isa, Value q);
  Value subStart(OfToken activationSum, int64_t i, int64_t sub);

  const bool pairs = p.isa.dot.tokens == 2;
  /// Memory for the start values of dots of sub-blocks of 16 biased bytes
  /// (subStartsOf), kActivationBlock bytes for each token of the tile; null for
  /// other formats.
  Value subStarts;
  /// Memory with copies of the magic number, from which dots of a single token
  /// start, for kStartGroups groups; null where dots start from something else.
  static constexpr int64_t kStartGroups = 8;
  Value magicStarts;
};

/// Emits the dots of a group where each tile unpacks the weights that it
/// multiplies. If `inTurn`, vectors of outputs process it one after the other.
void unpackedDots(TileSums &sums, const Group &group, bool inTurn);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_TILESUMS_H
