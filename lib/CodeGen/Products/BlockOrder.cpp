//===- BlockOrder.cpp - Sub-blocks, an activation block at once -----------===//
//
// GroupDots for formats with sub-blocks on AVX-512 VNNI, where a tile has two
// panels:
//
//   for each block of 128 activations
//     sums of 16 activations, where bytes of sub-blocks of 16 are biased
//     for each two groups, or the two sub-blocks of 16 of a group
//       for each chunk: unpack, dots of all tokens with it
//       integers of the sub-blocks
//     integers of minimums, scales, the activations' scales
//
// A dot takes 4 cycles, and a core starts two in a cycle, so the 8 dots of a
// tile alone would wait for each other: two for each sum are computed at a
// time. They and the sums take 24 of 32 registers. LLVM would load ahead and
// spill them, so code runs in the order in which it is emitted.
//
//===----------------------------------------------------------------------===//

#include "GroupDots.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

namespace {
class BlockOrder final : public GroupDots {
public:
  using GroupDots::GroupDots;

private:
  /// Two dots of each accumulator that are computed together: of two groups, or
  /// of the sub-blocks of one.
  struct Pair {
    /// Of a group and panel, and of a group and token.
    SmallVector<Values> chunks, q;
    /// Those of all accumulators, then the second ones.
    Values dots;
  };

  Values subBlockSums(const Tile &tile, Value block,
                      const GroupSpan &span) override;
  Pair pairFrom(const Tile &tile, const SubBlocks &in, const GroupSpan &span,
                int64_t group);
  void addDots(Pair &pair, size_t size);
  void storeSubStarts(const Tile &tile, Value firstGroup);
  Values minimumSums(const Tile &tile, const SubBlocks &in, Value firstGroup);

  /// Groups of a pair.
  const int64_t together = 2 / subDots;
  /// Memory for the sums of the groups of an activation block, as int16, which
  /// holds 127 * 32: for each token of the tile.
  static constexpr int64_t kSumBytes = 2 * kBlockGroups;
  const Value groupSums = b.scratch(schedule.tokens * kSumBytes);
};
} // namespace

/// The pair whose first group is number `group` of an activation block.
BlockOrder::Pair BlockOrder::pairFrom(const Tile &tile, const SubBlocks &in,
                                      const GroupSpan &span, int64_t group) {
  Pair pair;
  Value inBlock = arith::SubIOp::create(b, span.first, in.first);
  for (int64_t g = group; g < group + together; ++g) {
    Values &chunks = pair.chunks.emplace_back();
    for (Value header : in.headers)
      chunks.push_back(b.at(b.at(b.at(header, panelHeaderBytes(format)),
                                 b.mul(inBlock, panelGroupBytes(format))),
                            g * panelGroupBytes(format)));
    Values &q = pair.q.emplace_back();
    for (const Activations &token : tile.tokens)
      q.push_back(b.at(b.at(token.q, b.mul(span.first, kGroup)), g * kGroup));
  }
  for (int64_t second = 0; second < 2; ++second) {
    auto sumOf = [&](size_t t) {
      return activationSum(tile.tokens[t],
                           b.add(span.first, b.integer(group + second)));
    };
    for (size_t i = 0; i < tile.size; ++i) {
      Value lack = subStarts ? nullptr : correction(sumOf, int64_t(i));
      pair.dots.push_back(lack ? lack : b.constant(integers(), 0));
    }
  }
  return pair;
}

/// Adds all products to the dots of `size` accumulators.
void BlockOrder::addDots(Pair &pair, size_t size) {
  const int64_t dotParts = unpack->parts / subDots;
  const auto tokens = size_t(schedule.tokens);
  for (int64_t chunk = 0; chunk < unpack->chunks(); ++chunk)
    for (int64_t group = 0; group < together; ++group) {
      SmallVector<Values> codes;
      for (Value chunks : pair.chunks[group]) {
        prefetchChunk(chunks, chunk);
        codes.push_back(unpack->codes(b, chunk, [&](int64_t i, bool) {
          return loadVector(chunks, i, 0);
        }));
      }
      for (int64_t part = 0; part < unpack->parts; ++part) {
        auto dots = MutableArrayRef(pair.dots).slice(
            (group * subDots + part / dotParts) * size, size);
        Values w;
        for (const Values &packed : codes)
          w.push_back(unpack->bytes(b, packed, chunk, part));
        const int64_t step = chunk + part * unpack->chunks();
        for (size_t t = 0; t < tokens; ++t) {
          Value x = activations(pair.q[group][t], step);
          for (size_t p = 0; p < w.size(); ++p) {
            std::unique_ptr<Dot> dot = dotFrom(dots[p * tokens + t]);
            dot->step(w[p], x, step % 4);
            dots[p * tokens + t] = dot->finish();
          }
        }
        b.keepOrder(dots);
      }
    }
}

/// The sums of activations times the minimums' integers, of two groups in an
/// instruction.
Values BlockOrder::minimumSums(const Tile &tile, const SubBlocks &in,
                               Value firstGroup) {
  const VectorType halves = b.vector(2 * lanes, b.getI16Type());
  for (auto [t, token] : llvm::enumerate(tile.tokens)) {
    Value sums = b.load(b.vector(kBlockGroups, b.getI32Type()),
                        b.at(token.sums, b.mul(firstGroup, 4)));
    b.storeKept(arith::TruncIOp::create(
                    b, b.vector(kBlockGroups, b.getI16Type()), sums),
                b.at(groupSums, int64_t(t) * kSumBytes));
  }
  Value first = arith::SubIOp::create(b, firstGroup, in.first);
  Values sums(tile.size, b.constant(integers(), 0));
  for (int64_t two = 0; two < kBlockGroups / 2; ++two) {
    Values minimums;
    for (Value header : in.headers) {
      auto integersOf = [&](int64_t group) {
        return subIntegersOf(tile, header, 1, firstGroup, first,
                             2 * two + group)[0];
      };
      Value upper =
          arith::ShLIOp::create(b, integersOf(1), b.constant(integers(), 16));
      minimums.push_back(vector::BitCastOp::create(
          b, halves, arith::OrIOp::create(b, integersOf(0), upper)));
    }
    for (auto [i, sum] : llvm::enumerate(sums)) {
      Value x = b.loadKept(
          b.getI32Type(),
          b.at(groupSums, int64_t(tokenOf(i)) * kSumBytes + two * 4));
      sum = b.intrinsic(
          integers(), "llvm.x86.avx512.vpdpwssd.512",
          {sum, minimums[panelOf(i)],
           vector::BitCastOp::create(b, halves, b.splat(integers(), x))});
    }
  }
  return sums;
}

/// Stores what dots lack. The dots end before they need it, for these sums are
/// late.
void BlockOrder::storeSubStarts(const Tile &tile, Value firstGroup) {
  for (auto [t, token] : llvm::enumerate(tile.tokens)) {
    Value q = b.at(token.q, b.mul(firstGroup, kGroup));
    for (int64_t i = 0; i < kActivationBlock; i += 4 * lanes)
      b.storeKept(subStartsOf(isa, b.at(q, i)),
                  b.at(subStarts, int64_t(t) * kActivationBlock + i));
  }
}

Values BlockOrder::subBlockSums(const Tile &tile, Value block,
                                const GroupSpan &span) {
  // The last block may have fewer groups.
  if (span.each != span.most)
    return GroupDots::subBlockSums(tile, block, span);
  const SubBlocks in = subBlocks(tile, block);
  if (subStarts)
    storeSubStarts(tile, span.first);
  Value inBlock = arith::SubIOp::create(b, span.first, in.first);
  Values sums(tile.size, b.constant(integers(), 0));
  for (int64_t group = 0; group < kBlockGroups; group += together) {
    Pair pair = pairFrom(tile, in, span, group);
    addDots(pair, tile.size);
    for (int64_t second = 0; second < 2; ++second) {
      const int64_t number = group * subDots + second;
      Values scales;
      for (Value header : in.headers)
        scales.append(
            subIntegersOf(tile, header, 0, span.first, inBlock, number));
      for (auto [i, sum] : llvm::enumerate(sums)) {
        Value dot = pair.dots[second * tile.size + i];
        if (subStarts) {
          Value start = b.loadKept(
              b.getI32Type(),
              b.at(subStarts, int64_t(tokenOf(i)) * kActivationBlock +
                                  number * kGroup / subDots));
          dot = b.add(dot, b.splat(integers(), start));
        }
        sum = b.add(sum, b.mul(dot, scales[panelOf(i)]));
      }
    }
    b.keepOrder(sums);
  }
  Values minimums, t;
  if (scalesOf(format).hasMinimum())
    minimums = minimumSums(tile, in, span.first);
  for (auto [i, sum] : llvm::enumerate(sums))
    t.push_back(scaled(
        sum, [&](int64_t i) { return minimums[i]; }, in.headers[panelOf(i)],
        tile, int64_t(i), b.zeros(floats(), -0.0f)));
  return t;
}

void qwen::emitBlockOrder(const KernelInfo &kernel,
                          const KernelSchedule &schedule, ModuleOp module) {
  BlockOrder(kernel, schedule, module).emit();
}
