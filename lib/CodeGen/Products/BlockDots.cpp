//===- BlockDots.cpp - Sub-blocks, an activation block at once ------------===//
//
// StripDots for formats with sub-blocks on AVX-512 VNNI. A tile has two panels
// and takes a whole block of activations at once: the dots of all tokens with a
// sub-block, then its integers; behind the block each panel's minimums and
// scales. Then comes the next block of the run, then the next tile of the
// strip. Dots and sums of a tile take 24 of 32 registers, so that code runs in
// the order in which it is emitted, or LLVM would load ahead and spill them.
// A strip unpacks weights of 5 and 6 bits once. Each tile unpacks weights of 4
// bits.
//
//                strip of tokens
//   panel    K |  +------+------+
//   panel      v  | tile | tile |  4 groups of 32 without a loop, then the
//                 +------+------+  next block along K
//
//===----------------------------------------------------------------------===//

#include "Strips.h"

using namespace qwen;
using namespace mlir;

using Shared = Strips::Shared;

/// Each tile unpacks codes of 4 bits, which takes few instructions. Sums of 16
/// activations take many, so that dots of sub-blocks of 16 do without.
static Shared sharedOf(WeightFormat format) {
  if (dotsOfGroup(format) > 1)
    return Shared::SignedBytes;
  return codingOf(format).bits > 4 ? Shared::Bytes : Shared::Integers;
}

namespace {
/// Emits the sums of a whole block.
class BlockDots {
public:
  BlockDots(TileSums &sums, Strips &strips) : sums(sums), strips(strips) {
    if (isSigned) {
      // A constant that LLVM does not know, or it would flip bits of scalars.
      signs = {b.constant(b.vector(sums.vectorBytes, b.i8), -128)};
      b.keepOrder(signs);
    }
    const int64_t count = sums.loops.tileTokens * kBlockGroups;
    if (p.unpack->range.bias != 0 && !isSigned)
      starts = b.scratch(count * kStartBytes);
    if (scalesOf(p.format).hasMinimum())
      groupSums = b.scratch(count * kSumBytes);
  }

  /// t of each accumulator.
  Values blockSums(Value block, Value first) {
    const WeightBlock in = sums.subBlocks(block);
    prefetchNextTile(first);
    storeActivationSums(first);
    Values totals(tile.size, b.constant(sums.integers(), 0));
    for (int64_t group = 0; group < kBlockGroups; ++group) {
      Value g = b.add(first, group);
      for (int64_t sub = 0; sub < p.subDots; ++sub) {
        const Values dots = dotsOf(in, first, group, sub);
        for (auto [i, sum] : llvm::enumerate(totals)) {
          const size_t panel = sums.panelOf(int64_t(i));
          sum = b.add(
              sum, b.mul(dots[i], strips.sharedIntegers(panel, 0, g, sub)[0]));
          if (sub + 1 == p.subDots && isSigned)
            sum = b.add(sum, strips.sharedCorrection(panel, g));
        }
        b.keepOrder(totals);
      }
    }
    Values t;
    for (size_t panel = 0; panel < tile.panels.size(); ++panel) {
      Values minimums;
      if (groupSums)
        minimums = minimumSums(panel, first);
      for (size_t token = 0; token < tile.tokens.size(); ++token) {
        const auto i = int64_t(t.size());
        t.push_back(sums.scaled(
            in, i, totals[size_t(i)], [&](int64_t) { return minimums[token]; },
            b.zeros(sums.floats(), -0.0f)));
      }
      b.keepOrder(MutableArrayRef(t).take_back(tile.tokens.size()));
    }
    return t;
  }

private:
  /// The next tile's activations of a run are too short for the processor's own
  /// prefetcher.
  void prefetchNextTile(Value first) {
    Value next = b.add(b.mul(p.k, sums.loops.tileTokens), b.mul(first, kGroup));
    for (const Tile::Activations &token : tile.tokens)
      for (int64_t i = 0; i < kActivationBlock; i += ProductBuilder::kCacheLine)
        b.prefetch(b.at(b.at(token.q, next), i),
                   ProductBuilder::CacheLevel::L1);
  }

  void storeActivationSums(Value first) {
    for (auto [t, token] : llvm::enumerate(tile.tokens)) {
      const auto number = int64_t(t) * kBlockGroups;
      Value added =
          b.load(b.vector(kBlockGroups, b.i32), b.at(token.sums, first, 4));
      if (starts)
        b.storeKept(b.mul(added, -p.unpack->range.bias),
                    b.at(starts, number * kStartBytes));
      if (groupSums)
        b.storeKept(b.truncated(b.vector(kBlockGroups, b.i16), added),
                    b.at(groupSums, number * kSumBytes));
    }
  }

  /// The dots of all accumulators with sub-block `sub` of group first + group.
  Values dotsOf(const WeightBlock &in, Value first, int64_t group,
                int64_t sub) {
    const auto tokens = size_t(sums.loops.tileTokens);
    Value g = b.add(first, group);
    Values dots;
    for (size_t i = 0; i < tile.size; ++i) {
      Value start = b.constant(sums.integers(), 0);
      if (starts) {
        const int64_t number = int64_t(sums.tokenOf(i)) * kBlockGroups + group;
        start = b.splat(sums.integers(),
                        b.loadKept(b.i32, b.at(starts, number * kStartBytes)));
      }
      dots.push_back(start);
    }
    for (int64_t chunk = 0; chunk < p.unpack->chunks(); ++chunk) {
      SmallVector<Values> codes;
      for (Value header : in.headers)
        if (unpacks)
          codes.push_back(
              sums.codesOf(b.at(p.chunksOf(header, b.sub(first, in.first)),
                                group * panelGroupBytes(p.format)),
                           chunk, 0));
      sums.overParts(sub, [&](int64_t part) {
        const int64_t step = chunk + part * p.unpack->chunks();
        Values w;
        for (size_t panel = 0; panel < tile.panels.size(); ++panel)
          w.push_back(unpacks
                          ? p.unpack->bytes(b, codes[panel], chunk, part)
                          : strips.sharedBytes(strips.placeOf(panel, g), step));
        for (size_t t = 0; t < tokens; ++t) {
          Value x = sums.activations(b.at(tile.tokens[t].q, g, kGroup), step);
          if (isSigned)
            x = b.bitXor(x, signs[0]);
          for (size_t panel = 0; panel < w.size(); ++panel) {
            Value &sum = dots[panel * tokens + t], weights = w[panel];
            Dot dot = p.dotFrom(sum);
            dot.step(isSigned ? x : weights, isSigned ? weights : x, step % 4);
            sum = dot.finish();
          }
        }
        b.keepOrder(dots);
      });
    }
    return dots;
  }

  /// The sums of activations times the minimums' integers of a panel, of two
  /// groups in an instruction.
  Values minimumSums(size_t panel, Value first) {
    const VectorType halves = b.vector(2 * sums.loops.lanes, b.i16);
    Values added(tile.tokens.size(), b.constant(sums.integers(), 0));
    for (int64_t group = 0; group < kBlockGroups; group += 2) {
      auto minimum = [&](int64_t i) {
        return strips.sharedIntegers(panel, 1, b.add(first, group + i), 0)[0];
      };
      Value upper = b.shiftLeft(minimum(1), 16);
      Value both = b.bitcast(halves, b.bitOr(minimum(0), upper));
      for (auto [t, sum] : llvm::enumerate(added)) {
        const int64_t number = int64_t(t) * kBlockGroups + group;
        Value x = b.loadKept(b.i32, b.at(groupSums, number * kSumBytes));
        sum = b.intrinsic(
            sums.integers(), "llvm.x86.avx512.vpdpwssd.512",
            {sum, both, b.bitcast(halves, b.splat(sums.integers(), x))});
      }
    }
    return added;
  }

  TileSums &sums;
  Strips &strips;
  Product &p = sums.p;
  ProductBuilder &b = sums.b;
  const Tile &tile = sums.tile;
  const bool isSigned = strips.shared == Shared::SignedBytes,
             unpacks = strips.shared == Shared::Integers;
  /// The sign bits of bytes, with which activations become 128 more.
  Values signs;
  /// Memory for each group of each token of the tile: `starts` has the start
  /// values of dots of biased bytes, `groupSums` the sums of activations as
  /// int16, which holds 127 * 32.
  static constexpr int64_t kStartBytes = 4, kSumBytes = 2;
  Value starts, groupSums;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const BlockDotsSchedule &schedule, ModuleOp module) {
  Product product(kernel, module, ByteForm::Biased);
  TileLoops loops(product, schedule.tokens, Strips::kVectors);
  TileSums sums(loops, kBlockGroups, schedule.prefetch);
  Strips strips(sums, schedule.strip, schedule.depth, sharedOf(product.format));
  BlockDots whole(sums, strips);
  sums.wholeBlock = [&](Value block, const GroupSpan &span) {
    return whole.blockSums(block, span.first);
  };
  // A last block may have fewer groups.
  sums.addGroup = [&](const Group &group) {
    if (strips.shared == Shared::Bytes)
      sharedDots(sums, strips, group);
    else
      unpackedDots(sums, group, /*inTurn=*/false);
  };
  strips.emit();
}
