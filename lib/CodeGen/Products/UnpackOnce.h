//===- UnpackOnce.h - Many tokens for each unpacked block -------*- C++ -*-===//
//
// UnpackOnce.cpp has the loops, ArrangeBlock.cpp what they read of a block.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_UNPACKONCE_H
#define QWEN_LIB_CODEGEN_PRODUCTS_UNPACKONCE_H

#include "Dot.h"
#include "Product.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace qwen {

class UnpackOnce {
public:
  UnpackOnce(const KernelInfo &kernel, const UnpackOnceSchedule &schedule,
             mlir::ModuleOp module)
      : p(kernel, module, ByteForm::Scaled), schedule(schedule),
        fixed(fixedSchedule(kernel, schedule)) {}

  void emit();

private:
  static constexpr int64_t kLanes = 4;
  /// Bits of the lower part of a sum of activations.
  static constexpr int64_t kSumBits = 8;

  /// Tokens [first, first + bundles * bundleTokens), of a strip.
  struct Strip {
    Value first, bundles;
  };
  /// Groups of 32 of block `block`, which is `whole` or the last one.
  struct Block {
    Value number, groups;
    bool whole;
  };
  /// The registers of sums of a tile are, bundle by bundle, those of the
  /// outputs from register `first` of a panel on. Each bundle has activations
  /// (q), their scales (d) and a place of their sums of the block.
  struct Tile {
    Value first;
    Values q, d, sums;
  };

  void layOutScratch();
  void placeBehindStarts();
  void emitFixed();
  void emitPanels(int64_t count, Value output);
  void emitStrip(Value panel, Value last, const Strip &strip, Value output);
  void arrangeActivations(const Strip &strip, const Block &block);
  Value activationSums(Value token, const Block &block);
  Value sumsOf(const Block &block);
  Value activationSum(Value from, Value i, const Block &block);
  void unpackBlock(Value panel, Value output, const Block &block);
  void unpackScales(Value header, Value output, Value to);
  void unpackSubIntegers(Value header, Value output, Value j, Value to);
  void unpackMinimums(Value header, Value output, Value j);
  Values sumParts(Value from, const Block &block);
  Values minimumSums(const Tile &tile);
  Value minusMagic(Value sum);
  void storeForSums(Value values, int64_t v, Value to, int64_t first);
  void unpackGroup(Value from, Value to);
  void multiply(Value panelSums, const Strip &strip, const Block &block);
  Tile tileOf(const Strip &strip, const Block &block, Value v, Value bundle);
  Values blockSums(const Tile &tile, const Block &block);
  Values subBlockSums(const Tile &tile, const Block &block,
                      const GroupSpan &span);
  Values addGroup(const Tile &tile, Value g, int64_t sub, const Values &before);
  Values bundleSums(const Tile &tile, Value i, const Block &block);
  Values scaled(const Tile &tile, Value number,
                llvm::function_ref<Value(int64_t i)> isumOf,
                llvm::ArrayRef<Value> sums, ValueRange t);
  void finish(Value panelSums, Value output, const Strip &strip);

  mlir::VectorType floats() { return b.vector(kLanes, b.getF32Type()); }
  mlir::VectorType words() { return b.vector(kLanes, b.getI32Type()); }
  mlir::VectorType bytes() { return b.vector(16, b.getI8Type()); }

  /// Loads a whole register of the scratch, with inactive outputs.
  Value loadWhole(mlir::VectorType type, Value pointer) {
    return mlir::LLVM::LoadOp::create(b, type, pointer, 16);
  }
  void storeWhole(Value value, Value pointer) {
    mlir::LLVM::StoreOp::create(b, value, pointer, 16);
  }
  /// `index` registers behind `pointer`.
  Value atRegister(Value pointer, int64_t index) {
    return b.at(pointer, b.scaled(16 * index));
  }
  Value atRegister(Value pointer, Value index, int64_t each) {
    return b.at(pointer, b.mul(index, b.scaled(16 * each)));
  }

  Product p;
  ProductBuilder &b = p.b;
  const UnpackOnceSchedule &schedule;
  const Scaling &scaling = p.scaling;
  /// Whether sub-blocks have integers.
  const bool divided = scalesOf(p.format).hasSubBlocks();
  const bool pairs = p.isa.dot.tokens == 2;
  /// Whether sub-minimums are multiplied as bytes, those of 4 groups at once,
  /// with two bytes of each sum of activations: 256 times the one plus the
  /// other. So the pipe that multiplies integers of 32 bits has time for sums
  /// of dots.
  const bool byteMinimums = divided && pairs && scaling.takesSums();
  /// Dots of a register in a group, and vectors of integers that a group has.
  const int64_t subDots = dotsOfGroup(p.format);
  const int64_t groupIntegers =
      divided ? subDots * (byteMinimums ? 1 : scaling.count()) : 0;
  /// Groups whose activations have a sum together.
  const int64_t sumGroups = divided ? 1 : weightBlock(p.format) / kGroup;
  /// The schedule of the code for vectors of 128 bits.
  const UnpackOnceSchedule fixed;
  /// Tokens whose sums share a register, and registers of a bundle for a vector
  /// of outputs.
  const int64_t bundleTokens = p.isa.dot.tokens, bundleRegisters = bundleTokens;
  /// Steps of a group: an instruction multiplies 8 values of pairs, else 4.
  const int64_t steps = kGroup / 4 / bundleTokens;

  /// Vectors of outputs in a panel, registers of a bundle's sums for them, and
  /// the schedule of the code that is emitted now.
  int64_t vectors = 0, panelRegisters = 0;
  const UnpackOnceSchedule *current = nullptr;
  /// Bundles of a tile, and registers of outputs for each of them.
  int64_t tileBundles = 0, tileRegisters = 0;
  /// Parts of the scratch. Weights, scales and integers of sub-blocks are those
  /// of the block, by group; minimums are the sub-minimums of all its groups as
  /// bytes; activations are those of the block, by bundle; stripSums are those
  /// of the strip, by bundle; dots start from `starts`, and those with
  /// sub-minimums from `minimumStarts`.
  Value unpacked, scales, integers, minimums, activations, stripSums, starts,
      minimumStarts;
  int64_t activationBytes = 0, startBytes = 0, minimumStartBytes = 0;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_UNPACKONCE_H
