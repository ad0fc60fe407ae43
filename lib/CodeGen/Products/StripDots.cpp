//===- StripDots.cpp - The order of strips of tokens on x86 ---------------===//
//
// StripDots.h has the loops.
//
//===----------------------------------------------------------------------===//

#include "StripDots.h"

using namespace qwen;
using namespace mlir;

StripDots::StripDots(const KernelInfo &kernel, const TileSchedule &schedule,
                     int64_t strip, int64_t depth, ModuleOp module,
                     Shared shared)
    : GroupDots(kernel, schedule, module), strip(strip), depth(depth),
      shared(shared) {
  if (isTight && !addsEachStep)
    heldSums = sumsMemory(1);
  memory = b.scratch(depth * abreast * groupBytes);
  totals = b.scratch(strip * abreast * vectors * vectorBytes);
}

//===----------------------------------------------------------------------===//
// What tiles share
//===----------------------------------------------------------------------===//

/// Where what is shared of group g lies.
Value StripDots::placeOf(size_t panel, Value g) {
  Value number = arith::SubIOp::create(b, g, firstGroup);
  Value group = b.at(memory, b.mul(number, abreast * groupBytes));
  return panel == 0 ? group : b.at(group, int64_t(panel) * groupBytes);
}

Values StripDots::codesOf(Value header, Value blockFirst, Value first,
                          int64_t group, int64_t chunk, int64_t v) {
  Value inBlock = arith::SubIOp::create(b, first, blockFirst);
  Value chunks = b.at(b.at(b.at(header, panelHeaderBytes(format)),
                           b.mul(inBlock, panelGroupBytes(format))),
                      group * panelGroupBytes(format));
  return unpack->codes(
      b, chunk, [&](int64_t i, bool) { return loadVector(chunks, i, v); });
}

void StripDots::shareGroup(const Panel &panel, size_t number, Value g) {
  Value block = blockOf(g), to = placeOf(number, g);
  Value header = headerOf(panel, block);
  Value blockFirst = b.mul(block, weightBlock(format) / kGroup);
  if (shared != Shared::Integers)
    shareBytes(header, blockFirst, g, to);
  shareIntegers(header, arith::SubIOp::create(b, g, blockFirst), to);
  if (shared == Shared::SignedBytes)
    shareCorrection(to);
}

void StripDots::shareBytes(Value header, Value blockFirst, Value g, Value to) {
  for (int64_t chunk = 0; chunk < unpack->chunks(); ++chunk)
    for (int64_t v = 0; v < vectors; ++v) {
      const Values codes = codesOf(header, blockFirst, g, 0, chunk, v);
      for (int64_t part = 0; part < unpack->parts; ++part) {
        const int64_t step = chunk + part * unpack->chunks();
        Value w = unpack->bytes(b, codes, chunk, part);
        if (shared == Shared::SignedBytes)
          w = arith::SubIOp::create(
              b, w, b.constant(w.getType(), unpack->range.bias));
        Value at = b.at(to, (step * vectors + v) * vectorBytes);
        b.store(w, at);
        if (takesMagnitudes)
          b.store(magnitudes(b, w), b.at(at, kWeightBytes));
      }
    }
}

/// Sub-scales of each dot of a group, as pairs of i16 where these multiply
/// dots, then the sub-minimums.
void StripDots::shareIntegers(Value header, Value inBlock, Value to) {
  for (int64_t set = 0; set < integerSets; ++set) {
    const int64_t number = set / subDots;
    Value j = b.add(b.mul(inBlock, subDots), b.integer(set % subDots));
    const Values integers =
        subIntegers(b, format, header, number, j, b.integer(0), vectors, lanes);
    for (auto [v, value] : llvm::enumerate(integers)) {
      const Type type = value.getType();
      Value stored = value;
      if (number == 0 && scalesDots())
        stored = arith::OrIOp::create(
            b, arith::AndIOp::create(b, value, b.constant(type, 0xffff)),
            arith::ShLIOp::create(b, value, b.constant(type, 16)));
      b.store(stored, b.at(to, integersAt + set * kIntegerBytes +
                                   int64_t(v) * vectorBytes));
    }
  }
}

/// Dots with activations that are 128 more lack -128 * the sum of their
/// weights.
void StripDots::shareCorrection(Value to) {
  const VectorType type = b.vector(vectorBytes, b.getI8Type());
  Value sum = b.constant(integers(), 0);
  for (int64_t sub = 0; sub < subDots; ++sub) {
    std::unique_ptr<Dot> dot = dotFrom(nullptr);
    for (int64_t step = 0; step < steps; ++step)
      dot->step(b.constant(type, 1),
                b.load(type, b.at(to, (sub * steps + step) * vectorBytes)), 0);
    Value scale =
        b.load(integers(), b.at(to, integersAt + sub * kIntegerBytes));
    sum = b.add(sum, b.mul(dot->finish(), scale));
  }
  b.store(b.mul(sum, b.constant(integers(), -128)), b.at(to, correctionAt));
}

Value StripDots::sharedBytes(size_t panel, Value g, int64_t step) {
  return b.load(b.vector(vectorBytes, b.getI8Type()),
                b.at(placeOf(panel, g), step * vectorBytes));
}

Values StripDots::sharedIntegers(size_t panel, int64_t number, Value g,
                                 int64_t sub) {
  const VectorType type = number == 0 && scalesDots()
                              ? b.vector(2 * lanes, b.getI16Type())
                              : integers();
  Value from = b.at(placeOf(panel, g),
                    integersAt + (number * subDots + sub) * kIntegerBytes);
  Values result;
  for (int64_t v = 0; v < vectors; ++v)
    result.push_back(b.load(type, b.at(from, v * vectorBytes)));
  return result;
}

Value StripDots::sharedCorrection(size_t panel, Value g) {
  return b.load(integers(), b.at(placeOf(panel, g), correctionAt));
}

//===----------------------------------------------------------------------===//
// Dots
//===----------------------------------------------------------------------===//

void StripDots::addGroup(const Group &group) {
  // Of a last block that has fewer groups.
  if (shared != Shared::Bytes)
    return GroupDots::addGroup(group);
  const VectorType type = b.vector(4 * lanes, b.getI8Type());
  const auto size = int64_t(group.panels) * schedule.tokens * vectors;
  Values from;
  for (size_t p = 0; p < group.panels; ++p)
    from.push_back(placeOf(p, group.number));
  // Else a sum, or the product of a dot, is added where it is loaded or made.
  const bool startsDots = addsEachStep || !(isMaddubs || hasSubBlocks);
  for (int64_t sub = 0; sub < subDots; ++sub) {
    SmallVector<std::unique_ptr<Dot>> dots;
    for (int64_t i = 0; i < size; ++i) {
      Value start = startsDots ? group.start(i, sub) : nullptr;
      Value scale = scalesDots() && group.scale ? group.scale(i, sub) : nullptr;
      dots.push_back(makeDot(b, isa, range, start, scale));
    }
    for (int64_t step = sub * steps; step < (sub + 1) * steps; ++step) {
      Values w, signs;
      for (Value of : from)
        for (int64_t v = 0; v < vectors; ++v) {
          auto loadFrom = [&](int64_t at) {
            return b.load(type,
                          b.at(of, at + (step * vectors + v) * vectorBytes));
          };
          w.push_back(loadFrom(takesMagnitudes ? kWeightBytes : 0));
          if (takesMagnitudes)
            signs.push_back(loadFrom(0));
        }
      for (int64_t t = 0; t < schedule.tokens; ++t) {
        if (isTight)
          b.keepLoadsInOrder();
        Value x = activations(group.q[t], step);
        for (size_t pv = 0; pv < w.size(); ++pv) {
          const size_t p = pv / vectors, v = pv % vectors;
          Dot &dot = *dots[(p * schedule.tokens + t) * vectors + v];
          dot.step(w[pv], takesMagnitudes ? withSigns(b, x, signs[pv]) : x, 0);
          if (isTight)
            dot.keepOrder();
        }
      }
    }
    if (isTight)
      b.keepLoadsInOrder();
    for (auto [i, dot] : llvm::enumerate(dots)) {
      Value value = dot->finish();
      Value start = startsDots ? nullptr : group.start(int64_t(i), sub);
      group.use(int64_t(i), sub, start ? b.add(value, start) : value);
    }
  }
}

//===----------------------------------------------------------------------===//
// Strips
//===----------------------------------------------------------------------===//

/// Calls body(tokens, totals) for the tiles of tokens [first, end): `totals` is
/// where the sums of a tile lie.
void StripDots::overTiles(
    ArrayRef<Panel> panels, Value first, Value end,
    llvm::function_ref<void(ArrayRef<Value>, Value)> body) {
  const int64_t tokenBytes = int64_t(panels.size()) * vectors * vectorBytes;
  b.loop(first, end, schedule.tokens, [&](Value token) {
    Values tokens;
    for (int64_t t = 0; t < schedule.tokens; ++t)
      tokens.push_back(b.add(token, b.integer(t)));
    Value inStrip = arith::SubIOp::create(b, token, first);
    body(tokens, b.at(totals, b.mul(inStrip, tokenBytes)));
  });
}

Values StripDots::loadTotals(size_t count, Value from) {
  Values values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(b.load(floats(), b.at(from, int64_t(i) * vectorBytes)));
  return values;
}

void StripDots::storeTotals(const Values &values, Value to) {
  for (auto [i, value] : llvm::enumerate(values))
    b.store(value, b.at(to, int64_t(i) * vectorBytes));
}

void StripDots::emitTiles(ArrayRef<Panel> panels, Value output) {
  const int64_t each = depth / kBlockGroups;
  Value blocks = activationBlocks();
  b.loop(b.integer(0), m, strip, [&](Value first) {
    Value end = b.smaller(m, b.add(first, b.integer(strip)));
    b.loop(b.integer(0), blocks, each, [&](Value block) {
      Value last = b.smaller(blocks, b.add(block, b.integer(each)));
      firstGroup = b.mul(block, kBlockGroups);
      b.loop(firstGroup, b.smaller(groups(), b.mul(last, kBlockGroups)), 1,
             [&](Value g) {
               for (auto [p, panel] : llvm::enumerate(panels))
                 shareGroup(panel, p, g);
             });
      overTiles(panels, first, end, [&](ArrayRef<Value> tokens, Value at) {
        addRun(tileOf(panels, output, tokens), tokens, block, last, at);
      });
    });
  });
}

/// The dots of blocks [block, last) of a tile, whose sums before and after them
/// lie at `held`, but at the ends of K.
void StripDots::addRun(const Tile &tile, ArrayRef<Value> tokens, Value block,
                       Value last, Value held) {
  auto is = [&](Value a, Value c) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, a, c);
  };
  for (const Panel &panel : tile.panels)
    prefetchStore(outputOf(panel, tile.output), tokens);
  Values sums = b.choose(
      is(block, b.integer(0)),
      [&] { return Values(tile.size, b.zeros(floats())); },
      [&] { return loadTotals(tile.size, held); });
  sums = addBlocks(tile, sums, block, b.smaller(wholeBlocks(), last), last);
  b.branch(
      is(last, activationBlocks()),
      [&] {
        for (auto [panel, ofPanel] :
             llvm::zip_equal(tile.panels, byPanel(tile, sums)))
          store(outputOf(panel, tile.output), tokens, ofPanel, lanes);
      },
      [&] { storeTotals(sums, held); });
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const StripDotsSchedule &schedule, ModuleOp module) {
  StripDots(kernel, {schedule.tokens, 2, schedule.unroll, schedule.prefetch},
            schedule.strip, schedule.depth, module)
      .emit();
}
