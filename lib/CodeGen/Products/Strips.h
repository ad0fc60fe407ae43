//===- Strips.h - Weights that the tiles of a strip share -------*- C++ -*-===//
//
// The loops of StripDots and BlockDots, x86's orders for prompts, and the
// memory on the stack for the weights that the tiles of a strip of tokens
// share:
//
//   for each panel of 16 outputs, or each two together
//     for each strip of tokens
//       for each `depth` groups along K
//         unpack their weights and the integers of their sub-blocks
//         for each tile of tokens
//           dots and scales of these groups, added to the tile's sums
//       + bias, + residual, store
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H

#include "TileSums.h"

namespace qwen {

class Strips {
public:
  /// Vectors of outputs of a tile.
  static constexpr int64_t kVectors = 2;

  /// The part of a group that tiles share beside the integers of sub-blocks.
  enum class Shared : uint8_t {
    /// Bytes as dots take them.
    Bytes,
    /// Bytes of weights with their sign, for dots with unsigned activations,
    /// and the correction of these dots.
    SignedBytes,
    /// Nothing.
    Integers,
  };

  /// Makes `sums` take the integers of sub-blocks from the memory. Strips have
  /// `strip` tokens, and `depth` groups are shared at once.
  Strips(TileSums &sums, int64_t strip, int64_t depth, Shared shared)
      : shared(shared),
        takesMagnitudes(sums.p.isa.dot.kind == DotKind::Maddubs &&
                        sums.p.unpack->range.least < 0),
        sums(sums), strip(strip), depth(depth) {
    const int64_t abreast = sums.loops.abreast;
    memory = b.scratch(depth * abreast * groupBytes);
    totals = b.scratch(strip * abreast * sums.loops.vectors * sums.vectorBytes);
    sums.subIntegers = [this](const WeightBlock &, auto... which) {
      return sharedIntegers(which...);
    };
  }

  /// Emits all loops.
  void emit() {
    const int64_t each = depth / kBlockGroups;
    sums.loops.overPanels([&](ArrayRef<Panel> panels, Value output) {
      const int64_t tokenBytes =
          int64_t(panels.size()) * sums.loops.vectors * sums.vectorBytes;
      Value blocks = p.activationBlocks();
      b.loop(0, p.m, strip, [&](Value first) {
        Value end = b.smaller(p.m, b.add(first, strip));
        b.loop(0, blocks, each, [&](Value block) {
          Value last = b.smaller(blocks, b.add(block, each));
          firstGroup = b.mul(block, kBlockGroups);
          b.loop(firstGroup, b.smaller(p.groups(), b.mul(last, kBlockGroups)),
                 1, [&](Value g) {
                   for (auto [number, panel] : llvm::enumerate(panels))
                     shareGroup(panel, number, g);
                 });
          b.loop(first, end, sums.loops.tileTokens, [&](Value token) {
            const Values tokens = sums.loops.tokensFrom(token);
            Value held = b.at(totals, b.sub(token, first), tokenBytes);
            sums.begin(panels, output, tokens);
            addRun(tokens, block, last, held);
          });
        });
      });
    });
  }

  /// The address of the memory for group g of a panel.
  Value placeOf(size_t panel, Value g) {
    Value group =
        b.at(memory, b.sub(g, firstGroup), sums.loops.abreast * groupBytes);
    return panel == 0 ? group : b.at(group, int64_t(panel) * groupBytes);
  }
  /// The bytes of `step` and vector `v` of the group at `place`, or their
  /// magnitudes.
  Value sharedBytes(Value place, int64_t step, int64_t v = 0,
                    bool magnitudes = false) {
    return b.load(
        b.vector(sums.vectorBytes, b.i8),
        b.at(place, (magnitudes ? kWeightBytes : 0) +
                        (step * sums.loops.vectors + v) * sums.vectorBytes));
  }
  /// Integer `number` of sub-block `sub`, for each vector.
  Values sharedIntegers(size_t panel, int64_t number, Value g, int64_t sub) {
    const VectorType type = number == 0 && sums.scalesDots
                                ? b.vector(2 * sums.loops.lanes, b.i16)
                                : sums.integers();
    Value from = b.at(placeOf(panel, g),
                      integersAt + (number * p.subDots + sub) * kIntegerBytes);
    Values result;
    for (int64_t v = 0; v < sums.loops.vectors; ++v)
      result.push_back(b.load(type, b.at(from, v * sums.vectorBytes)));
    return result;
  }
  /// The correction of the sum of a group's dots times sub-scales.
  Value sharedCorrection(size_t panel, Value g) {
    return b.load(sums.integers(), b.at(placeOf(panel, g), correctionAt));
  }

  const Shared shared;
  /// Maddubs takes weights without a sign: it multiplies their magnitudes with
  /// activations that have their signs.
  const bool takesMagnitudes;

private:
  void shareGroup(const Panel &panel, size_t number, Value g) {
    Value block = p.blockOf(g), to = placeOf(number, g);
    Value header = p.headerOf(panel.weights, block);
    Value inBlock = b.sub(g, b.mul(block, p.blockGroups));
    if (shared != Shared::Integers)
      shareBytes(p.chunksOf(header, inBlock), to);
    shareIntegers(header, inBlock, to);
    if (shared == Shared::SignedBytes)
      shareCorrection(to);
  }

  void shareBytes(Value chunks, Value to) {
    const int64_t vectors = sums.loops.vectors, count = p.unpack->chunks();
    for (int64_t chunk = 0; chunk < count; ++chunk)
      for (int64_t v = 0; v < vectors; ++v) {
        const Values codes = sums.codesOf(chunks, chunk, v);
        for (int64_t part = 0; part < p.unpack->parts; ++part) {
          const int64_t step = chunk + part * count;
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
  void shareIntegers(Value header, Value inBlock, Value to) {
    for (int64_t set = 0; set < integerSets; ++set) {
      const int64_t number = set / p.subDots;
      const Values integers = p.scaling.integers(
          header, number, inBlock, set % p.subDots, b.integer(0),
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

  /// The correction of dots whose activations are 128 more: -128 * the sum of
  /// their weights.
  void shareCorrection(Value to) {
    const VectorType type = b.vector(sums.vectorBytes, b.i8);
    const int64_t steps = kGroup / 4 / p.subDots;
    Value sum = b.constant(sums.integers(), 0);
    for (int64_t sub = 0; sub < p.subDots; ++sub) {
      Dot dot = p.dotFrom(nullptr);
      for (int64_t step = 0; step < steps; ++step)
        dot.step(
            b.constant(type, 1),
            b.load(type, b.at(to, (sub * steps + step) * sums.vectorBytes)), 0);
      Value scale =
          b.load(sums.integers(), b.at(to, integersAt + sub * kIntegerBytes));
      sum = b.add(sum, b.mul(dot.finish(), scale));
    }
    b.store(b.mul(sum, -128), b.at(to, correctionAt));
  }

  /// The dots of blocks [block, last) of a tile, whose sums before and after
  /// them lie at `held`, but at the ends of K.
  void addRun(ArrayRef<Value> tokens, Value block, Value last, Value held) {
    auto place = [&](size_t i) {
      return b.at(held, int64_t(i) * sums.vectorBytes);
    };
    sums.loops.prefetchStore(tile.panels, tile.output, tokens);
    Values added = b.choose(
        b.isEqual(block, 0),
        [&] { return Values(tile.size, b.zeros(sums.floats())); },
        [&] {
          Values before;
          for (size_t i = 0; i < tile.size; ++i)
            before.push_back(b.load(sums.floats(), place(i)));
          return before;
        });
    added =
        sums.addBlocks(added, block, b.smaller(sums.wholeBlocks(), last), last);
    b.branch(
        b.isEqual(last, p.activationBlocks()),
        [&] { sums.loops.store(tile.panels, tile.output, tokens, added); },
        [&] {
          for (auto [i, total] : llvm::enumerate(added))
            b.store(total, place(i));
        });
  }

  TileSums &sums;
  Product &p = sums.p;
  ProductBuilder &b = sums.b;
  const Tile &tile = sums.tile;
  const int64_t strip, depth;

  static constexpr int64_t kWeightBytes = kGroup * kPanelOutputs;
  /// Bytes of an integer for each output.
  static constexpr int64_t kIntegerBytes = 4 * kPanelOutputs;
  /// The memory of a group has, in this order: weights by step and vector,
  /// their magnitudes, sub-scales and sub-minimums, the correction.
  const int64_t integerSets =
      p.divided ? p.subDots + scalesOf(p.format).numbers - 1 : 0;
  const int64_t integersAt =
      shared == Shared::Integers ? 0 : kWeightBytes * (takesMagnitudes ? 2 : 1);
  const int64_t correctionAt = integersAt + integerSets * kIntegerBytes;
  const int64_t groupBytes =
      correctionAt + (shared == Shared::SignedBytes ? kIntegerBytes : 0);
  /// Memory for these, from group `firstGroup` on, and for the sums of a strip.
  Value memory, firstGroup, totals;
};

/// Emits the dots of a group with its shared bytes.
void sharedDots(TileSums &sums, Strips &strips, const Group &group);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_STRIPS_H
