//===- GroupDots.h - The order of tiles of integer dots ---------*- C++ -*-===//
//
// The loop nest Dots, and what PairDots.cpp, HeldOrder.cpp, StripDots.cpp and
// BlockOrder.cpp change of it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_GROUPDOTS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_GROUPDOTS_H

#include "Dot.h"
#include "Linear.h"

namespace qwen {

/// Accumulator i of a tile is (panel * tokens + token) * vectors + vector.
class GroupDots : public TileOrder {
public:
  GroupDots(const KernelInfo &kernel, const TileSchedule &schedule,
            mlir::ModuleOp module, bool inTurn = false);

protected:
  /// Something of each token of the tile.
  using OfToken = llvm::function_ref<Value(size_t token)>;

  /// One group of 32 in several panels.
  struct Group {
    /// Of the groups along K.
    Value number;
    size_t panels;
    /// The first output of the tile, and where the chunks begin in a panel.
    Value output;
    llvm::function_ref<Value(size_t panel)> chunks;
    /// Activations.
    llvm::ArrayRef<Value> q;
    /// The start value of dot `sub` of accumulator i, of dotsOfGroup(); the
    /// receiver of its sum.
    llvm::function_ref<Value(int64_t i, int64_t sub)> start;
    llvm::function_ref<void(int64_t i, int64_t sub, Value dot)> use;
    /// Null, or the sub-scales that dot `sub` of accumulator i is multiplied
    /// with, where scalesDots().
    llvm::function_ref<Value(int64_t i, int64_t sub)> scale = nullptr;
  };
  /// Where quantized activations of a token are.
  struct Activations {
    Value q, d, sums;
  };
  /// What a tile multiplies.
  struct Tile {
    llvm::ArrayRef<Panel> panels;
    /// Its first output and token.
    Value output, first;
    llvm::SmallVector<Activations> tokens;
    /// Number of accumulators.
    size_t size;
  };
  /// Where the sub-blocks of an activation block are.
  struct SubBlocks {
    /// Of the block of weights, in each panel.
    Values headers;
    /// The first group of the block of weights.
    Value first;
  };
  /// Emits the dots of a group.
  virtual void addGroup(const Group &group);

  llvm::SmallVector<Values> tileSums(llvm::ArrayRef<Panel> panels, Value output,
                                     llvm::ArrayRef<Value> tokens) override;
  Activations activationsAt(Value token);
  Tile tileOf(llvm::ArrayRef<Panel> panels, Value output,
              llvm::ArrayRef<Value> tokens);
  /// Activation blocks of a token that have all groups.
  Value wholeBlocks() { return b.shiftRight(groups(), 2); }
  /// `totals` after activation blocks [first, last), of which those before
  /// `whole` have all groups.
  Values addBlocks(const Tile &tile, Values totals, Value first, Value whole,
                   Value last);
  /// The sums of a tile for each of its panels.
  llvm::SmallVector<Values> byPanel(const Tile &tile, const Values &totals);

  /// Whether addGroup() multiplies dots with sub-scales, and these start from
  /// the sums of the groups before.
  virtual bool scalesDots() const { return false; }
  /// Integer `number` of sub-block `sub` of group g, in a panel of the tile,
  /// for each vector of the tile.
  virtual Values subIntegersOf(const Tile &tile, const SubBlocks &in,
                               size_t panel, int64_t number, Value g,
                               int64_t sub);
  /// The values of accumulators that loops over groups carry: all, or none
  /// where heldSums is memory.
  Values startSums(Value zero, size_t count);
  Value sum(const Values &carried, mlir::VectorType type, int64_t i);
  Values allSums(const Values &carried, mlir::VectorType type, size_t count);
  void setSum(Values &carried, int64_t i, Value value);

  /// Scalars of tokens, or vectors of outputs, in the lanes of accumulator `i`.
  virtual Value forToken(mlir::VectorType type, OfToken scalar, int64_t i) {
    return b.splat(type, scalar(tokenOf(i)));
  }
  virtual Value forOutputs(Value values, int64_t) { return values; }
  /// The correction of the dots of accumulator `i`, from sums of activations;
  /// null if they need none.
  virtual Value correction(OfToken activationSum, int64_t i);
  /// The start value of dots that one subtraction turns into floats (kMagic).
  virtual float magic(int64_t i) const;

  /// -bias * sum, and the magic number.
  Value lacking(Value activationSum, int64_t i);
  /// Vector `v` of a chunk of the group whose chunks begin at `chunks`.
  Value loadVector(Value chunks, int64_t chunk, int64_t v);
  /// Activations 4 * step .. 4 * step + 3 of a group, as Dot takes them.
  Value activations(Value q, int64_t step);
  /// Fetches what lies as far behind `line` as the schedule says.
  void prefetch(Value line);
  /// Fetches the chunks of a group that begin at `chunks`, as far as those of
  /// step `chunk` are new.
  void prefetchChunk(Value chunks, int64_t chunk);
  /// t of each accumulator where sub-blocks of a block multiply its scales with
  /// integers: products of these with dots are added as integers.
  virtual Values subBlockSums(const Tile &tile, Value block,
                              const GroupSpan &span);
  /// Those of activation block `block`.
  SubBlocks subBlocks(const Tile &tile, Value block);
  /// What dots of biased bytes of sub-blocks of 16 start from, -bias * the sum
  /// of their activations, four times each: of as many activations from `q` on
  /// as a vector of `isa` has bytes.
  Value subStartsOf(const IsaInfo &isa, Value q);
  Value scaled(Value dot, llvm::function_ref<Value(int64_t i)> minimumSum,
               Value header, const Tile &tile, int64_t i, Value t);
  Value activationSum(const Activations &token, Value g);
  /// Start value `i * subDots + sub` is that of dot `sub` of accumulator `i`.
  Values startsOf(const Group &group);
  void addPanels(const Group &group, size_t first, size_t count, int64_t sub,
                 llvm::ArrayRef<Value> starts);
  std::unique_ptr<Dot> dotFrom(Value start) {
    return makeDot(b, isa, unpack->range, start);
  }
  Value headerOf(const Panel &panel, Value block);
  /// Calls body(part) for the parts of codes that dot `sub` of a group takes.
  void overParts(int64_t sub, llvm::function_ref<void(int64_t)> body) const {
    const int64_t count = unpack->parts / subDots;
    for (int64_t part = sub * count; part < (sub + 1) * count; ++part)
      body(part);
  }

  /// Memory for the sums of a tile in a block, where registers are short; else
  /// null.
  Value heldSums;
  /// Memory for the sums of `tiles` tiles.
  Value sumsMemory(int64_t tiles) {
    return b.scratch(tiles * schedule.tokens * vectors * vectorBytes,
                     vectorBytes);
  }
  /// Bytes of a vector of outputs.
  const int64_t vectorBytes = 4 * lanes;

  /// Memory for subStartsOf() of a block, kActivationBlock bytes for each token
  /// of the tile; null without a bias or sub-blocks of 16.
  Value subStarts;

  /// Whether vectors process a group one after the other.
  const bool inTurn;
  /// Dots of an accumulator in a group.
  const int64_t subDots = dotsOfGroup(format);

  size_t tokenOf(int64_t i) const { return i / vectors % schedule.tokens; }
  size_t panelOf(int64_t i) const { return i / vectors / schedule.tokens; }
  mlir::VectorType floats() { return b.vector(lanes, b.getF32Type()); }
  mlir::VectorType integers() { return b.vector(lanes, b.getI32Type()); }

private:
  /// Fetches this tile's share, in `block`, of the panels that are read next.
  void prefetchShare(const Tile &tile, Value block);
  Values addBlock(const Tile &tile, Value block, ValueRange totals,
                  const GroupSpan &span);
  Values narrowSums(const Tile &tile, const GroupSpan &span);
  Values wideSums(const Tile &tile, Value block, const GroupSpan &span);
  Values addWide(const Tile &tile, Value number, const GroupSpan &span,
                 const Values &before);
  Values subMinimums(const Tile &tile, const SubBlocks &in,
                     const GroupSpan &span);
  Value subStart(OfToken activationSum, int64_t i, int64_t sub);
  void storeMagic();
  bool hasMagicStarts() const { return magicStarts && !b.isScalable(); }
  Value magicStart(Value g, int64_t i);
  bool startsFromMagic() const;
  /// Whether dots of a group do not go on from those of the group before.
  bool shortChains() const;
  Value floatSum(OfToken activationSum, int64_t i);

  /// Registers of the magic number, for the accumulators of kStartGroups groups
  /// of a single token.
  static constexpr int64_t kStartGroups = 8;
  Value magicStarts;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_GROUPDOTS_H
