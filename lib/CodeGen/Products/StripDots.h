//===- StripDots.h - The order of strips of tokens on x86 -------*- C++ -*-===//
//
// GroupDots where the tiles of a strip of tokens share unpacked weights:
//
//   for each panel of 16 outputs, or each two together
//     for each strip of tokens
//       for each `depth` groups along K
//         unpack their weights and the integers of their sub-blocks
//         for each tile of tokens
//           dots and scales of these groups, added to the tile's sums
//       + bias, + residual, store
//
// What is unpacked and the sums of the strip lie in a scratch on the stack.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_STRIPDOTS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_STRIPDOTS_H

#include "GroupDots.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <algorithm>

namespace qwen {

/// Also the base of BlockDots.cpp.
class StripDots : public GroupDots {
public:
  /// What tiles share of a group, beside the integers of its sub-blocks.
  enum class Shared : uint8_t {
    /// Bytes as dots take them.
    Bytes,
    /// Bytes of weights with their sign, for dots with unsigned activations,
    /// and what these dots lack.
    SignedBytes,
    /// Nothing.
    Integers,
  };

  StripDots(const KernelInfo &kernel, const TileSchedule &schedule,
            int64_t strip, int64_t depth, mlir::ModuleOp module,
            Shared shared = Shared::Bytes);

protected:
  void addGroup(const Group &group) override;
  Values subIntegersOf(const Tile &, const SubBlocks &, size_t panel,
                       int64_t number, Value g, int64_t sub) override {
    return sharedIntegers(panel, number, g, sub);
  }

  /// The chunk `chunk` of group first + group, vector `v`, of the block of
  /// weights with this header, which begins with group `blockFirst`.
  Values codesOf(Value header, Value blockFirst, Value first, int64_t group,
                 int64_t chunk, int64_t v);
  /// Of group g of a panel, which is one vector: the bytes of `step`.
  Value sharedBytes(size_t panel, Value g, int64_t step);
  /// Its sub-scales or sub-minimums, as in subIntegersOf().
  Values sharedIntegers(size_t panel, int64_t number, Value g, int64_t sub);
  /// What the sum of its dots, times sub-scales, lacks.
  Value sharedCorrection(size_t panel, Value g);

  const int64_t strip, depth;
  const Shared shared;

private:
  void emitTiles(llvm::ArrayRef<Panel> panels, Value output) override;
  bool scalesDots() const override { return isMaddubs; }

  void shareGroup(const Panel &panel, size_t number, Value g);
  void shareBytes(Value header, Value blockFirst, Value g, Value to);
  void shareIntegers(Value header, Value inBlock, Value to);
  void shareCorrection(Value to);
  void
  overTiles(llvm::ArrayRef<Panel> panels, Value first, Value end,
            llvm::function_ref<void(llvm::ArrayRef<Value> tokens, Value totals)>
                body);
  void addRun(const Tile &tile, llvm::ArrayRef<Value> tokens, Value block,
              Value last, Value held);
  Values loadTotals(size_t count, Value from);
  void storeTotals(const Values &values, Value to);
  Value placeOf(size_t panel, Value g);

  static constexpr int64_t kWeightBytes = kGroup * kPanelOutputs;
  /// Bytes of an integer for each output.
  static constexpr int64_t kIntegerBytes = 4 * kPanelOutputs;

  const bool isMaddubs = isa.dot.kind == DotKind::Maddubs;
  const bool hasSubBlocks = scalesOf(format).hasSubBlocks();
  /// Whether dots and sums fill the registers.
  const bool isTight = isa.registers == 16;
  /// Maddubs takes weights without a sign: it multiplies their magnitudes with
  /// activations that have their signs.
  const bool takesMagnitudes = isMaddubs && unpack->range.least < 0;
  const ByteRange range = {unpack->range.factor, unpack->range.bias,
                           takesMagnitudes ? 0 : unpack->range.least,
                           std::max(-unpack->range.least, unpack->range.most)};
  /// Whether 16 bits hold the products of one step only, so that each step adds
  /// to the sums of 32 bits.
  const bool addsEachStep =
      isMaddubs && hasSubBlocks && range.most * 2 * 2 * 127 > INT16_MAX;

  /// Steps of a dot.
  const int64_t steps = kGroup / 4 / subDots;
  /// Of a group lie in this order: weights by step and vector, their
  /// magnitudes, sub-scales and sub-minimums, the correction.
  const int64_t integerSets =
      hasSubBlocks ? subDots + scalesOf(format).numbers - 1 : 0;
  const int64_t integersAt =
      shared == Shared::Integers ? 0 : kWeightBytes * (takesMagnitudes ? 2 : 1);
  const int64_t correctionAt = integersAt + integerSets * kIntegerBytes;
  const int64_t groupBytes =
      correctionAt + (shared == Shared::SignedBytes ? kIntegerBytes : 0);
  /// Memory for these, from group `firstGroup` on, and for the sums of a strip.
  Value memory, firstGroup, totals;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_STRIPDOTS_H
