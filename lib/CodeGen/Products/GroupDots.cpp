//===- GroupDots.cpp - Each tile unpacks the weights it multiplies --------===//
//
// The innermost loop takes groups of 32 along K of one tile; then comes the
// next tile of tokens, then the next panel. The f32 sums of a tile, and its
// dots of a group, stay in registers. Each tile unpacks the weights of a group
// where it multiplies them, so a call with several tiles unpacks them as often.
// Weights come from memory once, activations from a cache once for each panel.
//
//            tokens of a tile
//   panel   +------+------+----
//   of 16   | K -> |next  |       each tile: along K; a panel is one pass
//   outputs +------+ tile |       over all tokens
//
//===----------------------------------------------------------------------===//

#include "TileSums.h"

using namespace qwen;
using namespace mlir;

/// Dots `sub` of `count` panels from `first` on, which share the activations.
static void addPanels(TileSums &sums, const Group &group, bool inTurn,
                      size_t first, size_t count, int64_t sub,
                      ArrayRef<Value> starts) {
  ProductBuilder &b = sums.b;
  const Unpack &unpack = *sums.p.unpack;
  const int64_t tokens = sums.loops.tileTokens, vectors = sums.loops.vectors,
                chunks = unpack.chunks(), size = tokens * vectors;
  Values from, again;
  SmallVector<Dot> dots;
  for (size_t p = 0; p < count; ++p) {
    from.push_back(b.at(sums.chunksOf(group, first + p), sums.tile.output, 4));
    again.push_back(unpack.loadsTwice(b) ? b.opaque(from[p]) : from[p]);
    for (int64_t i = 0; i < size; ++i)
      dots.push_back(sums.p.dotFrom(
          starts[((first + p) * size + i) * sums.p.subDots + sub]));
  }
  auto addChunk = [&](int64_t chunk, int64_t v) {
    SmallVector<Values> codes;
    for (size_t p = 0; p < count; ++p) {
      if (v == 0 && sub == 0)
        sums.prefetchChunk(from[p], chunk);
      codes.push_back(unpack.codes(b, chunk, [&](int64_t i, bool second) {
        return sums.loadVector((second ? again : from)[p], i, v);
      }));
    }
    sums.overParts(sub, [&](int64_t part) {
      Values w;
      for (const Values &packed : codes)
        w.push_back(unpack.bytes(b, packed, chunk, part));
      const int64_t step = chunk + part * chunks;
      for (int64_t t = 0; t < tokens; ++t) {
        Value x = sums.activations(group.q[t], step);
        for (size_t p = 0; p < count; ++p)
          dots[p * size + t * vectors + v].step(w[p], x, step % 4);
      }
    });
  };
  // All vectors at once, or in turn.
  const int64_t each = inTurn ? 1 : vectors;
  for (int64_t begin = 0; begin < vectors; begin += each) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t v = begin; v < begin + each; ++v)
        addChunk(chunk, v);
    for (int64_t v = begin; v < begin + each; ++v)
      for (int64_t i = v; i < std::ssize(dots); i += vectors)
        group.use(int64_t(first) * size + i, sub, dots[i].finish());
  }
}

void qwen::unpackedDots(TileSums &sums, const Group &group, bool inTurn) {
  const Values starts = sums.startsOf(group);
  const size_t panels = sums.tile.panels.size(),
               each = sums.loops.abreast > 1 ? panels : 1;
  for (size_t p = 0; p < panels; p += each)
    for (int64_t sub = 0; sub < sums.p.subDots; ++sub)
      addPanels(sums, group, inTurn, p, each, sub, starts);
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const GroupDotsSchedule &schedule, ModuleOp module) {
  Product product(kernel, module, ByteForm::Biased);
  TileLoops loops(product, schedule.tokens, schedule.vectors, schedule.streams);
  TileSums sums(loops, schedule.unroll, schedule.prefetch);
  sums.addGroup = [&](const Group &group) {
    unpackedDots(sums, group, schedule.inTurn != 0);
  };
  sums.emit();
}
