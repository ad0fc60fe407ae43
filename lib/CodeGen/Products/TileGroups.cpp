//===- TileGroups.cpp - A scale for 32 or 64 values, by AMX ---------------===//
//
// The order of AMX for formats whose blocks have fewer values than a block of
// activations (TileTurns.h). A unit is one tile of tokens with two panels. A
// multiplication takes the values of one block of weights, and its dots have a
// tile of their own.
//
//   turn            0    1    2    3    4    5    6    7
//   block           0    0    1    1    2    2    3    3     of 4; of 2 with 64
//   panel           0    1    0    1    0    1    0    1
//   tile of dots    0    1    2    3    0    1    2    3
//
//===----------------------------------------------------------------------===//

#include "TileTurns.h"

using namespace qwen;

namespace {
class TileGroups final : public TileTurns {
public:
  using TileTurns::TileTurns;

  static Shape shapeOf(const Product &p) {
    const int64_t count = kBlockGroups / p.blockGroups;
    return {.turns = 2 * count,
            .panels = 2,
            .dots = 2 * count,
            .depthLines = p.blockGroups * kGroup / 4,
            .scaleVectors = 2 * count * p.scaling.count(),
            .sumBytes = p.scaling.takesSums() ? count * 4 : 0};
  }

private:
  void multiply(int64_t turn, ArrayRef<Value> tokens, Value weights) override {
    const int64_t block = turn / 2, panel = turn % 2;
    const int64_t tokenTile = kTokenTile + block % 2,
                  weightTile = kWeightTile + panel;
    if (panel == 0) {
      const int64_t byte = block * p.blockGroups * kGroup;
      loadTile(tokenTile, tokens[0],
               byte / kLineBytes * kTileBytes + byte % kLineBytes);
    }
    loadTile(weightTile, weights,
             panel * kBlockBytes + block * p.blockGroups * kGroupBytes);
    clearTile(turn % kTokenTile);
    addDots(turn % kTokenTile, tokenTile, weightTile);
  }

  /// The dots of a panel are neighbours.
  std::optional<Stored> storedIn(int64_t turn) const override {
    const int64_t of = (turn + shape.turns - 2) % shape.turns;
    return Stored{of % kTokenTile, of % 2 * count + of / 2};
  }

  int64_t sumsAt(int64_t, int64_t panel) const override {
    return panel * kTileBytes;
  }

  void addRows(int64_t part, Value dots, const Step &step) override {
    const int64_t panel = part / count, rows = kLines / count,
                  first = part % count * rows;
    Values scales;
    for (int64_t i = 0; i < count * scaling.count(); ++i)
      scales.push_back(
          loadVector(floats, step.scales, panel * count * scaling.count() + i));
    for (int64_t r = first; r < first + rows; ++r) {
      Value t = b.zeros(floats, -0.0f);
      for (int64_t i = 0; i < count; ++i) {
        Value dot =
            loadVector(integers, dots, (panel * count + i) * kLines + r);
        Value sum;
        if (scaling.takesSums())
          sum = b.splat(floats,
                        b.load(b.f32, b.at(tokenSums(step, 0, r), i * 4)));
        t = scaling.add(
            b.toFloat(floats, dot), sum,
            ArrayRef(scales).slice(i * scaling.count(), scaling.count()), t);
      }
      addToSums(step.sums, panel * kLines + r, t, tokenScale(step, 0, r));
    }
  }

  void arrangeBlock(ArrayRef<Value> panels, Value block, Value lines,
                    Value scales) override {
    for (auto [number, panel] : llvm::enumerate(panels)) {
      arrangeGroups(block, b.at(lines, int64_t(number) * kBlockBytes), 1,
                    [&, panel = panel](Value group, Value to) {
                      unpackGroup(panel, group, [&](Value line, int64_t i) {
                        b.store(line, b.at(to, i * kLineBytes));
                      });
                    });
      for (int64_t i = 0; i < count; ++i)
        arrangeScales(panel,
                      b.add(b.mul(block, kBlockGroups), i * p.blockGroups),
                      b.at(scales, (int64_t(number) * count + i) *
                                       scaling.count() * kLineBytes));
    }
  }

  /// As f32, for each block of weights.
  void arrangeSums(Value groupSums, Value to) override {
    if (p.blockGroups == 2)
      groupSums = b.add(b.shuffle(groupSums, groupSums, {0, 2}),
                        b.shuffle(groupSums, groupSums, {1, 3}));
    b.store(b.toFloat(b.vector(count, b.f32), groupSums), to);
  }

  /// Blocks of weights in a block of activations.
  const int64_t count = kBlockGroups / p.blockGroups;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const TileGroupsSchedule &schedule, ModuleOp module) {
  TileGroups(kernel, module,
             {schedule.tokens, schedule.strip, schedule.depth, schedule.bypass},
             TileGroups::shapeOf)
      .emit();
}
