//===- TilePlanes.cpp - Sub-blocks, by AMX --------------------------------===//
//
// The order of AMX for formats whose sub-blocks have integers (TileTurns.h). A
// product of a code and its sub-scale has 16 bits, so that the values of a
// panel have two planes: its low byte with a sign, and the rest, which fits in
// a byte. These are in place of the two panels of TileBlocks. A dot of a block
// is 256 * the dot of the upper plane + the dot of the lower plane, the integer
// that docs/numerics.md defines. Sub-blocks of 16 and of 32 cost the same.
//
//===----------------------------------------------------------------------===//

#include "TilePairs.h"

using namespace qwen;

namespace {
class TilePlanes final : public TilePairs {
public:
  using TilePairs::TilePairs;

  /// The scales of a block, then two vectors of pairs of sub-minimums.
  static Shape shapeOf(const Product &p) {
    const bool hasMinimum = p.scaling.takesSums();
    return shapeOfPairs(/*panels=*/1,
                        p.scaling.count() + (hasMinimum ? kPairs : 0),
                        hasMinimum ? kPairs * 4 : 0);
  }

private:
  /// Pairs of groups of a block.
  static constexpr int64_t kPairs = kBlockGroups / 2;

  int64_t sumsAt(int64_t tile, int64_t) const override {
    return tile * kTileBytes;
  }

  /// A quarter of the rows of a tile of tokens.
  void addRows(int64_t part, Value dots, const Step &step) override {
    const int64_t tile = part / 4, rows = kLines / 4, first = part % 4 * rows;
    Values scales;
    for (int64_t i = 0; i < scaling.count(); ++i)
      scales.push_back(loadVector(floats, step.scales, i));
    for (int64_t r = first; r < first + rows; ++r) {
      Value low = loadVector(integers, dots, dotsAt(tile, 0) * kLines + r),
            high = loadVector(integers, dots, dotsAt(tile, 1) * kLines + r);
      Value isum = b.add(b.shiftLeft(high, 8), low), sum;
      if (scaling.takesSums())
        sum = b.toFloat(floats, minimumSum(step, tile, r));
      Value t = scaling.add(b.toFloat(floats, isum), sum, scales,
                            b.zeros(floats, -0.0f));
      addToSums(step.sums, tile * kLines + r, t, tokenScale(step, tile, r));
    }
  }

  /// The sums of a token's activations times the sub-minimums, of two groups in
  /// an instruction.
  Value minimumSum(const Step &step, int64_t tile, int64_t row) {
    Value result = b.constant(integers, 0);
    for (int64_t i = 0; i < kPairs; ++i) {
      Value pair = b.load(b.i32, b.at(tokenSums(step, tile, row), i * 4));
      result = b.intrinsic(
          integers, "llvm.x86.avx512.vpdpwssd.512",
          {result, loadVector(halves, step.scales, scaling.count() + i),
           b.bitcast(halves, b.splat(integers, pair))});
    }
    return result;
  }

  void arrangeBlock(ArrayRef<Value> panels, Value block, Value lines,
                    Value scales) override {
    Value first = b.mul(block, kBlockGroups);
    Value header = p.headerOf(panels[0], p.blockOf(first));
    arrangeGroups(block, lines, 2, [&](Value group, Value to) {
      arrangePlanes(panels[0], header, group, to);
    });
    arrangeScales(panels[0], first, scales);
    for (int64_t i = 0; scaling.takesSums() && i < kPairs; ++i) {
      auto minimum = [&](int64_t of) {
        Value inBlock = b.bitAnd(b.add(first, of), p.blockGroups - 1);
        return scaling.integers(header, 1, inBlock, 0, b.integer(0), 1,
                                kPanelOutputs)[0];
      };
      Value upper = b.shiftLeft(minimum(2 * i + 1), 16);
      b.store(b.bitOr(minimum(2 * i), upper),
              b.at(scales, (scaling.count() + i) * kLineBytes));
    }
  }

  void arrangePlanes(Value panel, Value header, Value group, Value to) {
    Value inBlock = b.bitAnd(group, p.blockGroups - 1);
    Values subScales;
    for (int64_t sub = 0; sub < p.subDots; ++sub) {
      Value scale = scaling.integers(header, 0, inBlock, sub, b.integer(0), 1,
                                     kPanelOutputs)[0];
      scale = b.bitOr(b.bitAnd(scale, 0xffff), b.shiftLeft(scale, 16));
      subScales.push_back(b.bitcast(halves, scale));
    }
    unpackGroup(panel, group, [&](Value line, int64_t i) {
      Value w = b.bitcast(halves, line);
      Value scale = subScales[i * p.subDots / (kGroup / 4)];
      auto product = [&](Value bytes) {
        Value value = arith::ShRSIOp::create(b, bytes, b.constant(halves, 8));
        return b.mul(value, scale);
      };
      Value even = product(b.shiftLeft(w, 8)), odd = product(w);
      Value low = b.bitOr(b.bitAnd(even, 0x00ff), b.shiftLeft(odd, 8));
      Value high = b.bitOr(b.shiftRight(b.add(even, 128), 8),
                           b.bitAnd(b.add(odd, 128), int64_t{-256}));
      b.store(low, b.at(to, i * kLineBytes));
      b.store(high, b.at(to, kBlockBytes + i * kLineBytes));
    });
  }

  /// As int16, which holds 127 * 32, in pairs.
  void arrangeSums(Value groupSums, Value to) override {
    b.store(b.truncated(b.vector(kBlockGroups, b.i16), groupSums), to);
  }

  const VectorType halves = b.vector(2 * kPanelOutputs, b.i16);
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const TilePlanesSchedule &schedule, ModuleOp module) {
  TilePlanes(kernel, module,
             {schedule.tokens, schedule.strip, schedule.depth, schedule.bypass},
             TilePlanes::shapeOf)
      .emit();
}
