//===- TileTurns.h - Tile registers of AMX in turns -------------*- C++ -*-===//
//
// The loops of TileGroups, TileBlocks and TilePlanes, the orders of AMX. One
// instruction multiplies 16 tokens by 16 outputs, 64 deep, in a tile register
// of 16 lines of 64 bytes. Its dots leave through memory, and AVX-512 scales
// and adds them.
//
//   for each strip of tokens, whose activations lie as lines of tile registers
//     for each panel of 16 outputs, or each two together
//       for each `depth` groups along K: a stage
//         unpack their weights as lines of tile registers
//         for each tile of 16 tokens, or each two together: a unit
//           for each block of 128: a step
//       + bias, + residual, store
//
// A step has turns. A turn is one multiplication of tiles, then some rows of
// dots of steps before, then the store of a tile that was complete two turns
// ago:
//
//   turn      multiplies    adds rows of          stores a tile of
//   0, 1      this block    the step before last  the last step
//   2 ...     this block    the last step         this step, if one is complete
//
// The steps of a strip follow each other without a pause: the first steps of a
// stage or a panel add the last rows of the one before. So dots, scales and
// sums have several places in memory. docs/decisions/0032-amx-anew.md has the
// reasons.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_TILETURNS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_TILETURNS_H

#include "Product.h"

namespace qwen {

class TileTurns {
public:
  /// Lines of a tile register and bytes of one of them.
  static constexpr int64_t kLines = 16, kLineBytes = 64;
  static constexpr int64_t kTileBytes = kLines * kLineBytes;
  /// Bytes of a block of 128 values of 16 tokens or of 16 outputs as lines. A
  /// line of tokens has 64 values of one token, a line of weights 4 values of
  /// each output.
  static constexpr int64_t kBlockBytes = kActivationBlock * kPanelOutputs;
  /// Bytes of a group of 32 values of 16 outputs as lines.
  static constexpr int64_t kGroupBytes = kBlockBytes / kBlockGroups;
  /// Tiles before this one have dots. Two tiles from here on have tokens, and
  /// two have weights.
  static constexpr int64_t kTokenTile = 4, kWeightTile = 6;

  /// The tiles of a step.
  struct Shape {
    int64_t turns;
    /// Panels of outputs together.
    int64_t panels;
    /// Tiles of dots of a step.
    int64_t dots;
    /// Lines of a tile of weights: a fourth of the values that a multiplication
    /// takes along K.
    int64_t depthLines;
    /// Vectors of scales and integers of a block of weights.
    int64_t scaleVectors;
    /// Bytes of the sums of a token's activations in a block, as addRows()
    /// takes them.
    int64_t sumBytes;
  };
  /// Fields of the schedules of all orders.
  struct Sizes {
    int64_t tokens, strip, depth, bypass;
  };

  TileTurns(const KernelInfo &kernel, ModuleOp module, const Sizes &sizes,
            function_ref<Shape(const Product &)> shapeOf)
      : p(kernel, module, ByteForm::Exact), shape(shapeOf(p)), sizes(sizes) {}
  virtual ~TileTurns() = default;

  /// Emits the function, which takes any number of tokens.
  void emit();

protected:
  /// A step whose dots are added later: the number of its block of activations
  /// in the strip, and the distance to the number of the unit's second tile, or
  /// 0; the sums of the unit, and the scales of the weights.
  struct Step {
    Value number, second, sums, scales;
  };
  /// A tile of dots, and its place among the tiles of a step.
  struct Stored {
    int64_t tile, place;
  };

  /// Emits the multiplication of turn `turn`. `tokens` has the lines of each
  /// tile of tokens, `weights` is what arrangeBlock() wrote.
  virtual void multiply(int64_t turn, ArrayRef<Value> tokens,
                        Value weights) = 0;
  /// The tile whose dots are complete two turns before turn `turn`, if any: in
  /// turns 0 and 1 a tile of the last step.
  virtual std::optional<Stored> storedIn(int64_t turn) const = 0;
  /// Adds part `part` of `turns` of the rows of a step, whose dots begin at
  /// `dots`.
  virtual void addRows(int64_t part, Value dots, const Step &step) = 0;
  /// The place of the sums of tile `tile` of tokens and panel `panel` in the
  /// sums of a unit.
  virtual int64_t sumsAt(int64_t tile, int64_t panel) const = 0;
  /// Writes a block of the weights of the panels at `panels`: two blocks of
  /// lines, and the scales.
  virtual void arrangeBlock(ArrayRef<Value> panels, Value block, Value lines,
                            Value scales) = 0;
  /// Writes what addRows() takes of the sums of a token's activations in the
  /// four groups of a block, i32.
  virtual void arrangeSums(Value groupSums, Value to) = 0;

  // Parts of these.

  void amx(StringRef name, ValueRange operands) {
    LLVM::CallIntrinsicOp::create(
        b, b.getStringAttr(("llvm.x86." + name).str()), operands);
  }
  Value tileNumber(int64_t number) { return b.constant(b.i8, number); }
  void loadTile(int64_t number, Value lines, int64_t offset) {
    amx("tileloadd64",
        {tileNumber(number), b.at(lines, offset), b.integer(kLineBytes)});
  }
  void clearTile(int64_t number) { amx("tilezero", tileNumber(number)); }
  void addDots(int64_t place, int64_t tokens, int64_t weights) {
    amx("tdpbssd",
        {tileNumber(place), tileNumber(tokens), tileNumber(weights)});
  }
  /// Vector `index` at `base`.
  Value loadVector(VectorType type, Value base, int64_t index) {
    return b.load(type, b.at(base, index * kLineBytes));
  }
  /// The scale of row `row` of a unit's tile, in all lanes.
  Value tokenScale(const Step &step, int64_t tile, int64_t row);
  /// The address that arrangeSums() wrote to for the same row.
  Value tokenSums(const Step &step, int64_t tile, int64_t row);
  /// sum = fma(t, scale, sum), where the sum is vector `index` at `base`.
  void addToSums(Value base, int64_t index, Value t, Value scale);

  /// Calls write(line, i) with the 8 lines of bytes of a group.
  using WriteLine = function_ref<void(Value, int64_t)>;
  void unpackGroup(Value panel, Value group, WriteLine write);
  /// Calls arrange(group, lines) for each group of a block that there is, and
  /// writes zeros in place of others, in `planes` blocks of lines.
  void arrangeGroups(Value block, Value lines, int64_t planes,
                     function_ref<void(Value, Value)> arrange);
  /// The scales of a block of weights of `panel`, or zeros behind the last
  /// block, with a sign that changes no sum. `first` is its first group.
  void arrangeScales(Value panel, Value first, Value to);

  Product p;
  ProductBuilder &b = p.b;
  const Scaling &scaling = p.scaling;
  const Shape shape;
  const VectorType bytes = b.vector(kLineBytes, b.i8);
  const VectorType integers = b.vector(kPanelOutputs, b.i32);
  const VectorType floats = b.vector(kPanelOutputs, b.f32);

private:
  void configure();
  void allocate();
  void sizeStrips();
  void beginStrip(Value first);
  void arrangeSums();
  Value activeLanes(VectorType type, Value begin, Value end);
  void overPanels();
  Values stage(Value panel, Value number, Value first, ValueRange carried);
  Values overUnits(Value panel, const Step &base, Value lines, Value first,
                   Value last, ValueRange carried);
  void fetchAhead(Value panel, Value first, Value last, Value unit);
  Values step(ValueRange carried, Value lines, const Step *now);
  Values idle(Int count, ValueRange carried);
  Step noStep();
  void storePanels(Value panel);
  Value sumsOf(Value panel);
  Value ofTile(const Step &step, int64_t tile) {
    return tile == 0 ? step.number : b.add(step.number, step.second);
  }

  const Sizes sizes;
  /// Tiles of tokens of a unit.
  const int64_t tokenTiles = sizes.tokens / kLines;
  /// Blocks that are unpacked at once.
  const int64_t depth = sizes.depth / kBlockGroups;
  /// Bytes of an unpacked block's lines and scales, of a unit's sums, and of
  /// the sums of a strip.
  const int64_t weightBytes = 2 * kBlockBytes,
                scaleBytes = shape.scaleVectors * kLineBytes,
                unitBytes = tokenTiles * shape.panels * kTileBytes,
                stripBytes = sizes.strip / sizes.tokens * unitBytes;
  const Value groups = p.groups(), blocks = p.activationBlocks(),
              panelStride = p.panelStride();
  /// On the stack: lines and scales of weights; dots; the sums of a strip for
  /// two panels, and the sums of steps that there are not; sums of activations.
  Value weightLines, weightScales, dots, sums, noSums, activationSums;
  /// Tokens of a strip.
  Value stripTokens;
  /// The strip: its first token, its tiles of tokens, its units, and the lines
  /// and scales of its activations.
  Value firstToken, tiles, units, tokenLines, tokenScales;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_TILETURNS_H
