//===- StripDots.cpp - Tiles of a strip share unpacked weights ------------===//
//
// x86's order for prompts. The innermost loop takes a run of `depth` groups
// along K of one tile; then comes the next tile of the strip, then the next
// run, then the next strip and panel. Weights are unpacked once for a strip, to
// the stack. The sums of a tile stay in registers within a run, and lie on the
// stack between runs. On AVX2 the sums of a block lie on the stack, too.
//
//               strip of tokens
//   panel  K |  +------+------+------+
//   of 16    v  | tile | tile | tile |   unpack a run, then all tiles of it,
//               +------+------+------+   then the next run along K
//
//===----------------------------------------------------------------------===//

#include "Strips.h"

using namespace qwen;
using namespace mlir;

/// Whether dots and sums fill the registers.
static bool isTight(const Product &p) { return p.isa.registers == 16; }

/// The bytes that dots take.
static ByteRange rangeOf(const Product &p, bool takesMagnitudes) {
  const ByteRange &range = p.unpack->range;
  return {range.factor, range.bias, takesMagnitudes ? 0 : range.least,
          std::max(-range.least, range.most)};
}

/// Whether 16 bits hold the products of one step only, so that each step adds
/// to the sums of 32 bits.
static bool addsEachStep(const Product &p) {
  return p.isa.dot.kind == DotKind::Maddubs && p.divided &&
         rangeOf(p, false).most * 2 * 2 * 127 > INT16_MAX;
}

void qwen::sharedDots(TileSums &sums, Strips &strips, const Group &group) {
  Product &p = sums.p;
  ProductBuilder &b = sums.b;
  const int64_t tokens = sums.loops.tileTokens, vectors = sums.loops.vectors,
                steps = kGroup / 4 / p.subDots;
  const ByteRange range = rangeOf(p, strips.takesMagnitudes);
  // Else a sum, or the product of a dot, is added where it is loaded or made.
  const bool startsDots =
      addsEachStep(p) || (p.isa.dot.kind != DotKind::Maddubs && !p.divided);
  Values places;
  for (size_t panel = 0; panel < sums.tile.panels.size(); ++panel)
    places.push_back(strips.placeOf(panel, group.number));
  auto keepLoadsInOrder = [&] {
    if (isTight(p))
      b.keepLoadsInOrder();
  };
  for (int64_t sub = 0; sub < p.subDots; ++sub) {
    SmallVector<Dot> dots;
    for (int64_t i = 0; i < int64_t(sums.tile.size); ++i) {
      Value start = startsDots ? group.start(i, sub) : nullptr;
      Value scale =
          sums.scalesDots && group.scale ? group.scale(i, sub) : nullptr;
      dots.emplace_back(b, p.isa, range, start, scale);
    }
    for (int64_t step = sub * steps; step < (sub + 1) * steps; ++step) {
      Values w, signs;
      for (Value place : places)
        for (int64_t v = 0; v < vectors; ++v) {
          w.push_back(
              strips.sharedBytes(place, step, v, strips.takesMagnitudes));
          if (strips.takesMagnitudes)
            signs.push_back(strips.sharedBytes(place, step, v));
        }
      for (int64_t t = 0; t < tokens; ++t) {
        keepLoadsInOrder();
        Value x = sums.activations(group.q[t], step);
        for (size_t pv = 0; pv < w.size(); ++pv) {
          const size_t panel = pv / vectors, v = pv % vectors;
          Dot &dot = dots[(panel * tokens + t) * vectors + v];
          dot.step(w[pv], signs.empty() ? x : withSigns(b, x, signs[pv]), 0);
          if (isTight(p))
            dot.keepOrder();
        }
      }
    }
    keepLoadsInOrder();
    sums.use(group, sub, dots, !startsDots);
  }
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const StripDotsSchedule &schedule, ModuleOp module) {
  Product product(kernel, module, ByteForm::Biased);
  TileLoops loops(product, schedule.tokens, Strips::kVectors);
  TileSums sums(loops, schedule.unroll, schedule.prefetch);
  if (isTight(product) && !addsEachStep(product))
    sums.heldSums = sums.sumsMemory(1);
  sums.scalesDots = product.isa.dot.kind == DotKind::Maddubs;
  Strips strips(sums, schedule.strip, schedule.depth, Strips::Shared::Bytes);
  sums.addGroup = [&](const Group &group) { sharedDots(sums, strips, group); };
  strips.emit();
}
