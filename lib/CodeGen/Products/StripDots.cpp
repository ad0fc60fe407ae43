//===- StripDots.cpp - The order of strips of tokens on x86 ---------------===//
//
// HeldOrder where the tiles of a strip of tokens share unpacked weights:
//
//   for each panel of 16 outputs
//     for each strip of tokens
//       for each `depth` groups along K
//         unpack their weights and the integers of their sub-blocks
//         for each tile of tokens
//           dots and scales of these groups, added to the tile's sums
//       + bias, + residual, store
//
// What is unpacked and the sums of the strip lie in a scratch on the stack.
//
//===----------------------------------------------------------------------===//

#include "HeldOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace qwen;
using namespace mlir;

namespace {
class StripDots final : public HeldOrder {
public:
  StripDots(const KernelInfo &kernel, const KernelSchedule &schedule,
            ModuleOp module)
      : HeldOrder(kernel, schedule, module),
        unpacked(b.scratch(schedule.depth * groupBytes)),
        totals(b.scratch(schedule.strip * vectors * bytes)) {}

private:
  void emitTiles(ArrayRef<Panel> panels, Value output) override;
  void addGroup(const Group &group) override;
  bool scalesDots() const override { return isMaddubs; }
  Values subIntegersOf(const Tile &tile, Value header, int64_t number, Value g,
                       Value inBlock, int64_t sub) override;

  Values startSums(Value zero, size_t count) override {
    return carriesSums ? Values(count, zero)
                       : HeldOrder::startSums(zero, count);
  }
  Value sum(const Values &carried, VectorType type, int64_t i) override {
    return carriesSums ? carried[i] : HeldOrder::sum(carried, type, i);
  }
  void setSum(Values &carried, int64_t i, Value value) override {
    if (carriesSums)
      carried[i] = value;
    else
      HeldOrder::setSum(carried, i, value);
  }

  void unpackGroup(const Panel &panel, Value g);
  void unpackIntegers(Value header, Value inBlock, Value to);
  void overTiles(
      Value first, Value end,
      llvm::function_ref<void(ArrayRef<Value> tokens, Value totals)> body);
  Values loadTotals(Value from);
  void storeTotals(const Values &values, Value to);

  /// Where what is unpacked of group g lies: weights by step and vector, their
  /// magnitudes, sub-scales and sub-minimums.
  Value unpackedOf(Value g) {
    return b.at(unpacked,
                b.mul(arith::SubIOp::create(b, g, firstGroup), groupBytes));
  }

  static constexpr int64_t kWeightBytes = kGroup * kPanelOutputs;
  /// Bytes of an integer for each output.
  static constexpr int64_t kIntegerBytes = 4 * kPanelOutputs;

  const bool isMaddubs = isa.dot.kind == DotKind::Maddubs;
  const bool hasSubBlocks = scalesOf(format).hasSubBlocks();
  /// Maddubs takes weights without a sign: it multiplies their magnitudes with
  /// activations that have their signs.
  const bool takesMagnitudes = isMaddubs && unpack->range.least < 0;
  const ByteRange range = {unpack->range.factor, unpack->range.bias,
                           takesMagnitudes ? 0 : unpack->range.least,
                           std::max(-unpack->range.least, unpack->range.most)};
  /// Whether 16 bits hold the products of one step only. Loops then carry the
  /// sums of 32 bits in registers, and each step adds to them.
  const bool carriesSums =
      isMaddubs && hasSubBlocks && range.most * 2 * 2 * 127 > INT16_MAX;
  const int64_t integerSets =
      hasSubBlocks ? subDots + scalesOf(format).numbers - 1 : 0;
  const int64_t integersAt = kWeightBytes * (takesMagnitudes ? 2 : 1);
  const int64_t groupBytes = integersAt + integerSets * kIntegerBytes;
  const Value unpacked, totals;
  /// The first group that is unpacked.
  Value firstGroup;
};
} // namespace

//===----------------------------------------------------------------------===//
// Unpacked weights
//===----------------------------------------------------------------------===//

void StripDots::unpackGroup(const Panel &panel, Value g) {
  Value number = blockOf(g), to = unpackedOf(g);
  Value header = headerOf(panel, number);
  Value inBlock =
      arith::SubIOp::create(b, g, b.mul(number, weightBlock(format) / kGroup));
  Value chunks = b.at(b.at(header, panelHeaderBytes(format)),
                      b.mul(inBlock, panelGroupBytes(format)));
  for (int64_t chunk = 0; chunk < unpack->chunks(); ++chunk)
    for (int64_t v = 0; v < vectors; ++v) {
      const Values codes = unpack->codes(
          b, chunk, [&](int64_t i, bool) { return loadVector(chunks, i, v); });
      for (int64_t part = 0; part < unpack->parts; ++part) {
        const int64_t step = chunk + part * unpack->chunks();
        Value w = unpack->bytes(b, codes, chunk, part);
        Value at = b.at(to, (step * vectors + v) * bytes);
        b.store(w, at);
        if (takesMagnitudes)
          b.store(magnitudes(b, w), b.at(at, kWeightBytes));
      }
    }
  unpackIntegers(header, inBlock, b.at(to, integersAt));
}

/// Sub-scales of each dot of a group, as pairs of i16 where these multiply
/// dots, then the sub-minimums.
void StripDots::unpackIntegers(Value header, Value inBlock, Value to) {
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
      b.store(stored, b.at(to, set * kIntegerBytes + int64_t(v) * bytes));
    }
  }
}

Values StripDots::subIntegersOf(const Tile &, Value, int64_t number, Value g,
                                Value, int64_t sub) {
  const VectorType type = number == 0 && scalesDots()
                              ? b.vector(2 * lanes, b.getI16Type())
                              : integers();
  Value from = b.at(unpackedOf(g),
                    integersAt + (number * subDots + sub) * kIntegerBytes);
  Values result;
  for (int64_t v = 0; v < vectors; ++v)
    result.push_back(b.load(type, b.at(from, v * bytes)));
  return result;
}

//===----------------------------------------------------------------------===//
// Dots
//===----------------------------------------------------------------------===//

void StripDots::addGroup(const Group &group) {
  const int64_t steps = kGroup / 4 / subDots;
  const VectorType type = b.vector(4 * lanes, b.getI8Type());
  Value from = unpackedOf(group.number);
  // Else a sum, or the product of a dot, is added where it is loaded or made.
  const bool startsDots = carriesSums || !(isMaddubs || hasSubBlocks);
  for (int64_t sub = 0; sub < subDots; ++sub) {
    SmallVector<std::unique_ptr<Dot>> dots;
    for (int64_t i = 0; i < schedule.tokens * vectors; ++i) {
      Value start = startsDots ? group.start(i, sub) : nullptr;
      Value scale = scalesDots() && group.scale ? group.scale(i, sub) : nullptr;
      dots.push_back(makeDot(b, isa, range, start, scale));
    }
    for (int64_t step = sub * steps; step < (sub + 1) * steps; ++step) {
      auto loadFrom = [&](int64_t at, int64_t v) {
        return b.load(type, b.at(from, at + (step * vectors + v) * bytes));
      };
      Values w, signs;
      for (int64_t v = 0; v < vectors; ++v) {
        w.push_back(loadFrom(takesMagnitudes ? kWeightBytes : 0, v));
        if (takesMagnitudes)
          signs.push_back(loadFrom(0, v));
      }
      for (int64_t t = 0; t < schedule.tokens; ++t) {
        b.keepLoadsInOrder();
        Value x = activations(group.q[t], step);
        for (int64_t v = 0; v < vectors; ++v) {
          Dot &dot = *dots[t * vectors + v];
          dot.step(w[v], takesMagnitudes ? withSigns(b, x, signs[v]) : x, 0);
          dot.keepOrder();
        }
      }
    }
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

/// Calls body(tokens, totals) for the tiles of a strip: `totals` is where the
/// sums of a tile lie.
void StripDots::overTiles(
    Value first, Value end,
    llvm::function_ref<void(ArrayRef<Value>, Value)> body) {
  b.loop(first, end, schedule.tokens, [&](Value token) {
    Values tokens;
    for (int64_t t = 0; t < schedule.tokens; ++t)
      tokens.push_back(b.add(token, b.integer(t)));
    Value inStrip = arith::SubIOp::create(b, token, first);
    body(tokens, b.at(totals, b.mul(inStrip, vectors * bytes)));
  });
}

Values StripDots::loadTotals(Value from) {
  Values values;
  for (int64_t i = 0; i < schedule.tokens * vectors; ++i)
    values.push_back(b.load(floats(), b.at(from, i * bytes)));
  return values;
}

void StripDots::storeTotals(const Values &values, Value to) {
  for (auto [i, value] : llvm::enumerate(values))
    b.store(value, b.at(to, int64_t(i) * bytes));
}

void StripDots::emitTiles(ArrayRef<Panel> panels, Value output) {
  const Panel &panel = panels.front();
  const int64_t run = schedule.depth / kBlockGroups;
  Value blocks = activationBlocks();
  b.loop(b.integer(0), m, schedule.strip, [&](Value first) {
    Value end = b.smaller(m, b.add(first, b.integer(schedule.strip)));
    overTiles(first, end, [&](ArrayRef<Value> tokens, Value at) {
      storeTotals(Values(tokens.size() * vectors, b.zeros(floats())), at);
    });
    b.loop(b.integer(0), blocks, run, [&](Value block) {
      Value last = b.smaller(blocks, b.add(block, b.integer(run)));
      firstGroup = b.mul(block, kBlockGroups);
      b.loop(firstGroup, b.smaller(groups(), b.mul(last, kBlockGroups)), 1,
             [&](Value g) { unpackGroup(panel, g); });
      overTiles(first, end, [&](ArrayRef<Value> tokens, Value at) {
        const Tile tile = tileOf(panels, output, tokens);
        storeTotals(addBlocks(tile, loadTotals(at), block, last, 1), at);
      });
    });
    overTiles(first, end, [&](ArrayRef<Value> tokens, Value at) {
      store(b.add(b.mul(panel.number, kPanelOutputs), output), tokens,
            loadTotals(at), lanes);
    });
  });
}

void qwen::emitStripDots(const KernelInfo &kernel,
                         const KernelSchedule &schedule, ModuleOp module) {
  StripDots(kernel, schedule, module).emit();
}
