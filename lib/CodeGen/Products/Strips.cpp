//===- Strips.cpp - What the tiles of a strip of tokens share -------------===//

#include "Strips.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace qwen;
using namespace mlir;

Strips::Strips(TileSums &sums, int64_t strip, int64_t depth, Shared shared)
    : shared(shared), takesMagnitudes(sums.p.isa.dot.kind == DotKind::Maddubs &&
                                      sums.p.unpack->range.least < 0),
      sums(sums), strip(strip), depth(depth) {
  const int64_t abreast = sums.loops.abreast;
  memory = b.scratch(depth * abreast * groupBytes);
  totals = b.scratch(strip * abreast * sums.loops.vectors * sums.vectorBytes);
  sums.sharedIntegers = [this](size_t panel, int64_t number, Value g,
                               int64_t sub) {
    return sharedIntegers(panel, number, g, sub);
  };
}

//===----------------------------------------------------------------------===//
// What tiles share
//===----------------------------------------------------------------------===//

Value Strips::placeOf(size_t panel, Value g) {
  Value number = b.sub(g, firstGroup);
  Value group = b.at(memory, b.mul(number, sums.loops.abreast * groupBytes));
  return panel == 0 ? group : b.at(group, int64_t(panel) * groupBytes);
}

Values Strips::codesOf(Value header, Value blockFirst, Value first,
                       int64_t group, int64_t chunk, int64_t v) {
  Value inBlock = b.sub(first, blockFirst);
  Value chunks = b.at(b.at(b.at(header, panelHeaderBytes(p.format)),
                           b.mul(inBlock, panelGroupBytes(p.format))),
                      group * panelGroupBytes(p.format));
  return p.unpack->codes(
      b, chunk, [&](int64_t i, bool) { return sums.loadVector(chunks, i, v); });
}

void Strips::shareGroup(const Panel &panel, size_t number, Value g) {
  Value block = p.blockOf(g), to = placeOf(number, g);
  Value header = sums.headerOf(panel, block);
  Value blockFirst = b.mul(block, weightBlock(p.format) / kGroup);
  if (shared != Shared::Integers)
    shareBytes(header, blockFirst, g, to);
  shareIntegers(header, b.sub(g, blockFirst), to);
  if (shared == Shared::SignedBytes)
    shareCorrection(to);
}

void Strips::shareBytes(Value header, Value blockFirst, Value g, Value to) {
  const int64_t vectors = sums.loops.vectors, chunks = p.unpack->chunks();
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t v = 0; v < vectors; ++v) {
      const Values codes = codesOf(header, blockFirst, g, 0, chunk, v);
      for (int64_t part = 0; part < p.unpack->parts; ++part) {
        const int64_t step = chunk + part * chunks;
        Value w = p.unpack->bytes(b, codes, chunk, part);
        if (shared == Shared::SignedBytes)
          w = b.sub(w, b.constant(w.getType(), p.unpack->range.bias));
        Value at = b.at(to, (step * vectors + v) * sums.vectorBytes);
        b.store(w, at);
        if (takesMagnitudes)
          b.store(magnitudes(b, w), b.at(at, kWeightBytes));
      }
    }
}

/// Sub-scales of each dot of a group, as pairs of i16 where these multiply
/// dots, then the sub-minimums.
void Strips::shareIntegers(Value header, Value inBlock, Value to) {
  for (int64_t set = 0; set < integerSets; ++set) {
    const int64_t number = set / sums.subDots;
    Value j =
        b.add(b.mul(inBlock, sums.subDots), b.integer(set % sums.subDots));
    const Values integers =
        subIntegers(b, p.format, header, number, j, b.integer(0),
                    sums.loops.vectors, sums.loops.lanes);
    for (auto [v, value] : llvm::enumerate(integers)) {
      Value stored = value;
      if (number == 0 && sums.scalesDots)
        stored = b.bitOr(b.bitAnd(value, 0xffff), b.shiftLeft(value, 16));
      b.store(stored, b.at(to, integersAt + set * kIntegerBytes +
                                   int64_t(v) * sums.vectorBytes));
    }
  }
}

/// Dots with activations that are 128 more lack -128 * the sum of their
/// weights.
void Strips::shareCorrection(Value to) {
  const VectorType type = b.vector(sums.vectorBytes, b.getI8Type());
  const int64_t steps = kGroup / 4 / sums.subDots;
  Value sum = b.constant(sums.integers(), 0);
  for (int64_t sub = 0; sub < sums.subDots; ++sub) {
    Dot dot = sums.dotFrom(nullptr);
    for (int64_t step = 0; step < steps; ++step)
      dot.step(b.constant(type, 1),
               b.load(type, b.at(to, (sub * steps + step) * sums.vectorBytes)),
               0);
    Value scale =
        b.load(sums.integers(), b.at(to, integersAt + sub * kIntegerBytes));
    sum = b.add(sum, b.mul(dot.finish(), scale));
  }
  b.store(b.mul(sum, -128), b.at(to, correctionAt));
}

Value Strips::sharedBytes(Value place, int64_t step, int64_t v,
                          bool magnitudes) {
  return b.load(
      b.vector(sums.vectorBytes, b.getI8Type()),
      b.at(place, (magnitudes ? kWeightBytes : 0) +
                      (step * sums.loops.vectors + v) * sums.vectorBytes));
}

Values Strips::sharedIntegers(size_t panel, int64_t number, Value g,
                              int64_t sub) {
  const VectorType type = number == 0 && sums.scalesDots
                              ? b.vector(2 * sums.loops.lanes, b.getI16Type())
                              : sums.integers();
  Value from = b.at(placeOf(panel, g),
                    integersAt + (number * sums.subDots + sub) * kIntegerBytes);
  Values result;
  for (int64_t v = 0; v < sums.loops.vectors; ++v)
    result.push_back(b.load(type, b.at(from, v * sums.vectorBytes)));
  return result;
}

Value Strips::sharedCorrection(size_t panel, Value g) {
  return b.load(sums.integers(), b.at(placeOf(panel, g), correctionAt));
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

void Strips::emit() {
  sums.loops.overPanels([&](ArrayRef<Panel> panels, Value output) {
    emitPanels(panels, output);
  });
}

void Strips::emitPanels(ArrayRef<Panel> panels, Value output) {
  const int64_t each = depth / kBlockGroups;
  const int64_t tokenBytes =
      int64_t(panels.size()) * sums.loops.vectors * sums.vectorBytes;
  Value blocks = p.activationBlocks();
  b.loop(b.integer(0), p.m, strip, [&](Value first) {
    Value end = b.smaller(p.m, b.add(first, b.integer(strip)));
    b.loop(b.integer(0), blocks, each, [&](Value block) {
      Value last = b.smaller(blocks, b.add(block, b.integer(each)));
      firstGroup = b.mul(block, kBlockGroups);
      b.loop(firstGroup, b.smaller(p.groups(), b.mul(last, kBlockGroups)), 1,
             [&](Value g) {
               for (auto [number, panel] : llvm::enumerate(panels))
                 shareGroup(panel, number, g);
             });
      b.loop(first, end, sums.loops.tokens, [&](Value token) {
        const Values tokens = sums.loops.tokensFrom(token);
        Value held = b.at(totals, b.mul(b.sub(token, first), tokenBytes));
        addRun(sums.tileOf(panels, output, tokens), tokens, block, last, held);
      });
    });
  });
}

/// The dots of blocks [block, last) of a tile, whose sums before and after them
/// lie at `held`, but at the ends of K.
void Strips::addRun(const Tile &tile, ArrayRef<Value> tokens, Value block,
                    Value last, Value held) {
  auto is = [&](Value a, Value c) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, a, c);
  };
  auto place = [&](size_t i) {
    return b.at(held, int64_t(i) * sums.vectorBytes);
  };
  for (const Panel &panel : tile.panels)
    p.prefetchStore(sums.loops.outputOf(panel, tile.output), tokens);
  Values totals = b.choose(
      is(block, b.integer(0)),
      [&] { return Values(tile.size, b.zeros(sums.floats())); },
      [&] {
        Values before;
        for (size_t i = 0; i < tile.size; ++i)
          before.push_back(b.load(sums.floats(), place(i)));
        return before;
      });
  totals = sums.addBlocks(tile, totals, block,
                          b.smaller(sums.wholeBlocks(), last), last);
  b.branch(
      is(last, p.activationBlocks()),
      [&] {
        for (auto [panel, ofPanel] :
             llvm::zip_equal(tile.panels, sums.byPanel(tile, totals)))
          p.store(sums.loops.outputOf(panel, tile.output), tokens, ofPanel,
                  sums.loops.lanes);
      },
      [&] {
        for (auto [i, total] : llvm::enumerate(totals))
          b.store(total, place(i));
      });
}
