//===- HeldDots.cpp - Tiles where registers are short ---------------------===//
//
// GroupDots on AVX2, whose 16 registers the dots of a tile fill. The innermost
// loop takes groups along K of one tile, or of one tile of each stream. Sums of
// a block lie on the stack, where a group reads and writes each once; the dots
// of a group stay in registers. Each tile unpacks the weights that it
// multiplies. Code runs in the order in which it is emitted: LLVM moves loads
// ahead and reorders additions, so it would also keep activations in registers.
//
//             tokens of a tile
//   panel a  +----------------+
//   panel b  | a group of     |  chunk: a's dots, b's dots, ..., next chunk;
//     ...    | each in turn   |  along K, then the next tile, then panels
//            +----------------+
//
//===----------------------------------------------------------------------===//

#include "TileSums.h"

using namespace qwen;
using namespace mlir;

/// Adds one chunk of a group to dots `sub` of all panels. The chunks of panel p
/// begin at panels[p].
static void addChunk(TileSums &sums, ArrayRef<Value> panels, int64_t chunk,
                     int64_t sub, ArrayRef<Value> q,
                     MutableArrayRef<Dot> dots) {
  ProductBuilder &b = sums.b;
  const Unpack &unpack = *sums.p.unpack;
  const int64_t tokens = sums.loops.tileTokens, vectors = sums.loops.vectors;
  auto step = [&](int64_t part) { return chunk + part * unpack.chunks(); };
  // Panels share the activations of a single token. The activations of several
  // tokens are loaded again for each panel.
  Values shared(unpack.parts);
  if (tokens == 1) {
    b.keepLoadsInOrder();
    sums.overParts(sub, [&](int64_t part) {
      shared[part] = sums.activations(q[0], step(part));
    });
  }
  for (size_t p = 0; p < panels.size(); ++p) {
    if (sub == 0)
      sums.prefetchChunk(panels[p], chunk);
    SmallVector<Values> codes;
    for (int64_t v = 0; v < vectors; ++v)
      codes.push_back(sums.codesOf(panels[p], chunk, v));
    sums.overParts(sub, [&](int64_t part) {
      Values w;
      for (const Values &vector : codes)
        w.push_back(unpack.bytes(b, vector, chunk, part));
      for (int64_t t = 0; t < tokens; ++t) {
        b.keepLoadsInOrder();
        Value x =
            tokens == 1 ? shared[part] : sums.activations(q[t], step(part));
        for (int64_t v = 0; v < vectors; ++v) {
          Dot &dot = dots[(p * tokens + t) * vectors + v];
          dot.step(w[v], x, step(part) % 4);
          dot.keepOrder();
        }
      }
    });
  }
}

static void heldDots(TileSums &sums, const Group &group) {
  ProductBuilder &b = sums.b;
  Values panels;
  for (size_t p = 0; p < sums.tile.panels.size(); ++p)
    panels.push_back(b.at(sums.chunksOf(group, p), sums.tile.output, 4));
  for (int64_t sub = 0; sub < sums.p.subDots; ++sub) {
    SmallVector<Dot> dots;
    while (dots.size() < sums.tile.size)
      dots.push_back(sums.p.dotFrom(nullptr));
    for (int64_t chunk = 0; chunk < sums.p.unpack->chunks(); ++chunk)
      addChunk(sums, panels, chunk, sub, group.q, dots);
    b.keepLoadsInOrder();
    sums.use(group, sub, dots);
  }
}

void qwen::emitOrder(const KernelInfo &kernel, const HeldDotsSchedule &schedule,
                     ModuleOp module) {
  Product product(kernel, module, ByteForm::Biased);
  TileLoops loops(product, schedule.tokens, schedule.vectors, schedule.streams);
  TileSums sums(loops, schedule.unroll, schedule.prefetch);
  sums.addGroup = [&](const Group &group) { heldDots(sums, group); };
  sums.heldSums = sums.sumsMemory(std::max<int64_t>(schedule.streams, 1));
  sums.emit();
}
