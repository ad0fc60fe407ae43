//===- PairDots.cpp - Tiles of an instruction for two tokens --------------===//
//
// GroupDots where smmla multiplies 8 activations of two tokens with 8 weights
// of two outputs. The innermost loop takes groups along K of one tile, whose
// sums stay in registers. A tile arranges the activations of its pairs of
// tokens for each group and panel, and unpacks weights where it multiplies
// them. The lanes of sums are as in TileSums, and go to their tokens at the end
// of K.
//
//              tokens of a tile
//   panel    +------+------+
//   of 16    | pair | pair |  2 outputs x 2 tokens in each 128 bits of a sum;
//   outputs  +------+------+  along K, then the next tile, then the next panel
//
//===----------------------------------------------------------------------===//

#include "TileSums.h"

using namespace qwen;
using namespace mlir;

/// Activations 8 * step .. 8 * step + 7 of a group, for each pair of tokens.
static SmallVector<Values> pairActivations(TileSums &sums, ArrayRef<Value> q) {
  SmallVector<Values> x;
  for (size_t t = 0; t < q.size(); t += 2) {
    Values &pair = x.emplace_back();
    for (int64_t step = 0; step < kGroup / 8; ++step)
      pair.push_back(
          sums.b.permuted("trn", 64, sums.activations(q[t], 2 * step),
                          sums.activations(q[t + 1], 2 * step), step % 2 != 0));
  }
  return x;
}

static void pairDots(TileSums &sums, const Group &group) {
  ProductBuilder &b = sums.b;
  const Unpack &unpack = *sums.p.unpack;
  const int64_t tokens = sums.loops.tileTokens, vectors = sums.loops.vectors,
                steps = unpack.chunks() / 2;
  const Values starts = sums.startsOf(group);
  // The dots `sub` of vector `v` of panel `p`, whose chunks begin at `chunks`,
  // for each pair of tokens and each half of the vector.
  auto addVector = [&](size_t p, Value chunks, int64_t v, int64_t sub,
                       ArrayRef<Values> x) {
    auto index = [&](size_t half, size_t pair) {
      return int64_t(p * tokens + 2 * pair + half) * vectors + v;
    };
    SmallVector<Dot> dots[2];
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair)
        dots[half].push_back(
            sums.p.dotFrom(starts[index(half, pair) * sums.p.subDots + sub]));
    for (int64_t step = 0; step < steps; ++step) {
      const Values even = sums.codesOf(chunks, 2 * step, v);
      const Values odd = sums.codesOf(chunks, 2 * step + 1, v);
      for (size_t half : {0, 1}) {
        const Values codes = b.zipped(even, odd, half != 0);
        sums.overParts(sub, [&](int64_t part) {
          Value w = unpack.bytes(b, codes, 2 * step, part);
          for (auto [dot, pair] : llvm::zip_equal(dots[half], x))
            dot.step(w, pair[step + part * steps], 0);
        });
      }
    }
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair)
        group.use(index(half, pair), sub, dots[half][pair].finish());
  };
  for (size_t p = 0; p < sums.tile.panels.size(); ++p) {
    Value panel = sums.chunksOf(group, p);
    const SmallVector<Values> x = pairActivations(sums, group.q);
    Value chunks = b.at(panel, sums.tile.output, 4);
    for (int64_t v = 0; v < vectors; ++v)
      for (int64_t sub = 0; sub < sums.p.subDots; ++sub)
        addVector(p, chunks, v, sub, x);
  }
}

void qwen::emitOrder(const KernelInfo &kernel, const PairDotsSchedule &schedule,
                     ModuleOp module) {
  Product product(kernel, module, ByteForm::Biased);
  TileLoops loops(product, schedule.tokens, schedule.vectors, schedule.streams);
  TileSums sums(loops, schedule.unroll, schedule.prefetch);
  sums.addGroup = [&](const Group &group) { pairDots(sums, group); };
  sums.emit();
}
