//===- UnpackOnce.h - Many tokens for each unpacked block -------*- C++ -*-===//
//
// UnpackOnce.cpp has the loops. ArrangeBlock.cpp unpacks and arranges a block
// for them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_UNPACKONCE_H
#define QWEN_LIB_CODEGEN_PRODUCTS_UNPACKONCE_H

#include "Dot.h"
#include "Product.h"

namespace qwen {

class UnpackOnce {
public:
  UnpackOnce(const KernelInfo &kernel, const UnpackOnceSchedule &schedule,
             ModuleOp module)
      : p(kernel, module, ByteForm::Scaled), schedule(schedule),
        fixed(fixedSchedule(kernel, schedule)) {}

  void emit();

private:
  static constexpr int64_t kLanes = 4;
  /// Bits of the lower part of a sum of activations.
  static constexpr int64_t kSumBits = 8;

  /// The registers of sums of a tile are, bundle by bundle, those of the
  /// outputs from register `first` of a panel on. Each bundle has activations
  /// (q), their scales (d) and a place of their sums of the block.
  struct Tile {
    Value first;
    Values q, d, sums;
  };

  void layOutScratch();
  /// Loads a whole register of the scratch, with inactive outputs.
  Value loadWhole(VectorType type, Value pointer) {
    return LLVM::LoadOp::create(b, type, pointer, 16);
  }
  void storeWhole(Value value, Value pointer) {
    LLVM::StoreOp::create(b, value, pointer, 16);
  }
  /// `index` registers behind `pointer`.
  Value atRegister(Value pointer, int64_t index) {
    return b.at(pointer, b.scaled(16 * index));
  }
  Value atRegister(Value pointer, Value index, int64_t each) {
    return b.at(pointer, index, b.scaled(16 * each));
  }

  void emitFixed();
  void emitPanels(int64_t count, Value first);
  void emitStrip(Value panel, Value last);
  void finish(Value panelSums, Value first);
  Value activationsOf(Value token);
  Value scaleOf(Value token, Value blocks);
  Value sumsOf(Value token);
  void arrangeActivations();
  Values sumParts(Value from);
  Value activationSum(Value from, Value i);
  void unpackBlock(Value panel);
  void storeForSums(Value values, int64_t v, Value to, int64_t first);
  void unpackScales(Value header, Value to);
  void unpackSubIntegers(Value header, Value j, Value to);
  void unpackMinimums(Value header, Value j);
  void unpackGroup(Value from, Value to);
  void multiply(Value panelSums);
  Tile tileOf(Value v, Value bundle);
  /// The registers of the tile's outputs among those of a panel.
  Value inTile(Value panel, const Tile &tile) {
    return b.at(panel, tile.first, b.scaled(16));
  }
  /// 16 bytes that arrangeActivations() stored, in each 128 bits.
  Value loadPairs(VectorType type, Value pointer) {
    return b.bitcast(type, b.loadQuad(b.i8, pointer));
  }

  Values blockSums(const Tile &tile);
  /// The float of a sum that started from kMagic.
  Value minusMagic(Value sum) {
    return b.subF(b.bitcast(floats(), sum), b.zeros(floats(), kMagic));
  }

  Values subBlockSums(const Tile &tile, const GroupSpan &span);
  Values minimumSums(const Tile &tile);
  Values addGroup(const Tile &tile, Value g, int64_t sub, const Values &before);
  Values bundleSums(const Tile &tile, Value i);
  Values scaled(const Tile &tile, Value number,
                function_ref<Value(int64_t i)> isumOf, ArrayRef<Value> sums,
                ValueRange t);
  VectorType floats() { return b.vector(kLanes, b.f32); }
  VectorType words() { return b.vector(kLanes, b.i32); }
  VectorType bytes() { return b.vector(16, b.i8); }

  Product p;
  ProductBuilder &b = p.b;
  const UnpackOnceSchedule &schedule;
  const Scaling &scaling = p.scaling;
  const bool pairs = p.isa.dot.tokens == 2;
  /// Whether sub-minimums are multiplied as bytes, those of 4 groups at once,
  /// with two bytes of each sum of activations: 256 times the one plus the
  /// other. So the pipe that multiplies integers of 32 bits has time for sums
  /// of dots.
  const bool byteMinimums = p.divided && pairs && scaling.takesSums();
  /// Vectors of integers that a group has.
  const int64_t groupIntegers =
      p.divided ? p.subDots * (byteMinimums ? 1 : scaling.count()) : 0;
  /// Groups whose activations have a sum together.
  const int64_t sumGroups = p.divided ? 1 : p.blockGroups;
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
  /// The first of these outputs in a panel; the strip, which has tokens
  /// [firstToken, firstToken + stripBundles * bundleTokens); the block of 128
  /// along K with its groups of 32, which is whole or the last one.
  Value output, firstToken, stripBundles, block, blockGroups;
  bool isWhole = true;
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
