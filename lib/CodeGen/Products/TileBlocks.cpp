//===- TileBlocks.cpp - A scale for 128 values, by AMX --------------------===//
//
// The order of AMX for formats whose blocks have as many values as a block of
// activations (TileTurns.h). A unit is two tiles of tokens with two panels,
// whose four tiles of dots take both halves of a block. Each turn has one tile
// that the turn before it did not have.
//
//   turn          0    1    2    3    4    5    6    7
//   half          0    0    0    0    1    1    1    1
//   tokens        0    1    1    0    0    1    1    0
//   panel         0    0    1    1    0    0    1    1
//
//===----------------------------------------------------------------------===//

#include "TilePairs.h"

using namespace qwen;

namespace {
class TileBlocks final : public TilePairs {
public:
  using TilePairs::TilePairs;

  static Shape shapeOf(const Product &p) {
    return shapeOfPairs(/*panels=*/2, 2 * p.scaling.count(),
                        p.scaling.takesSums() ? 4 : 0);
  }

private:
  int64_t sumsAt(int64_t tile, int64_t panel) const override {
    return dotsAt(tile, panel) * kTileBytes;
  }

  /// Half of a tile.
  void addRows(int64_t part, Value dots, const Step &step) override {
    const int64_t place = part / 2, rows = kLines / 2, first = part % 2 * rows,
                  tile = tokensOf(place), panel = weightsOf(place);
    Values scales;
    for (int64_t i = 0; i < scaling.count(); ++i)
      scales.push_back(
          loadVector(floats, step.scales, panel * scaling.count() + i));
    for (int64_t r = first; r < first + rows; ++r) {
      const int64_t row = place * kLines + r;
      Value sum;
      if (scaling.takesSums())
        sum = b.splat(floats, b.load(b.f32, tokenSums(step, tile, r)));
      Value t = scaling.add(b.toFloat(floats, loadVector(integers, dots, row)),
                            sum, scales, b.zeros(floats, -0.0f));
      addToSums(step.sums, row, t, tokenScale(step, tile, r));
    }
  }

  void arrangeBlock(ArrayRef<Value> panels, Value block, Value lines,
                    Value scales) override {
    for (auto [number, panel] : llvm::enumerate(panels)) {
      const auto i = int64_t(number);
      arrangeGroups(block, b.at(lines, i * kBlockBytes), 1,
                    [&, panel = panel](Value group, Value to) {
                      unpackGroup(panel, group, [&](Value line, int64_t at) {
                        b.store(line, b.at(to, at * kLineBytes));
                      });
                    });
      arrangeScales(panel, b.mul(block, kBlockGroups),
                    b.at(scales, i * scaling.count() * kLineBytes));
    }
  }

  /// Their sum as f32.
  void arrangeSums(Value groupSums, Value to) override {
    Value sum = mlir::vector::ReductionOp::create(
        b, mlir::vector::CombiningKind::ADD, groupSums);
    b.store(b.toFloat(b.f32, sum), to);
  }
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const TileBlocksSchedule &schedule, ModuleOp module) {
  TileBlocks(kernel, module,
             {schedule.tokens, schedule.strip, schedule.depth, schedule.bypass},
             TileBlocks::shapeOf)
      .emit();
}
