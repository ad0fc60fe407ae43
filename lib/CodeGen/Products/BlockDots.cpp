//===- BlockDots.cpp -- Sub-blocks, an activation block at once -----------===//
//
// StripDots for formats with sub-blocks on AVX-512 VNNI, where a tile has two
// panels and takes a whole activation block at once:
//
//   for each group, or each of its sub-blocks of 16
//     dots of all tokens
//     integers of the sub-blocks
//   for each panel: integers of minimums, scales, the activations' scales
//
// The dots and the sums of a tile take 24 of 32 registers. LLVM would load
// ahead and spill them, so code runs in the order in which it is emitted.
//
//===----------------------------------------------------------------------===//

#include "StripDots.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

/// Each tile unpacks codes of 4 bits, which takes few instructions. Sums of 16
/// activations take many, so that dots of sub-blocks of 16 do without.
static StripDots::Shared sharedOf(WeightFormat format) {
  using enum StripDots::Shared;
  if (dotsOfGroup(format) > 1)
    return SignedBytes;
  return codingOf(format).bits > 4 ? Bytes : Integers;
}

namespace {
class BlockDots final : public StripDots {
public:
  BlockDots(const KernelInfo &kernel, const BlockDotsSchedule &schedule,
            ModuleOp module)
      : StripDots(kernel, {schedule.tokens, 2, kBlockGroups, schedule.prefetch},
                  schedule.strip, schedule.depth, module,
                  sharedOf(*weightFormat(kernel.format))) {
    if (shared == Shared::SignedBytes) {
      // A constant that LLVM does not know, or it would flip bits of scalars.
      signs = {b.constant(b.vector(vectorBytes, b.getI8Type()), -128)};
      b.keepOrder(signs);
    }
    if (hasStarts)
      starts = b.scratch(schedule.tokens * kBlockGroups * kStartBytes);
    if (scalesOf(format).hasMinimum())
      groupSums = b.scratch(schedule.tokens * kBlockGroups * kSumBytes);
  }

private:
  Values subBlockSums(const Tile &tile, Value block,
                      const GroupSpan &span) override;

  void prefetchNextTile(const Tile &tile, Value first);
  void storeActivationSums(const Tile &tile, Value first);
  Values dotsOf(const Tile &tile, const SubBlocks &in, Value first,
                int64_t group, int64_t sub);
  Values minimumSums(const Tile &tile, size_t panel, Value first);

  /// The sign bits of bytes, with which activations become 128 more.
  Values signs;
  const bool hasStarts =
      unpack->range.bias != 0 && shared != Shared::SignedBytes;
  /// Of the groups of each token: what dots of biased bytes start from, and the
  /// sums of activations as int16, which holds 127 * 32.
  static constexpr int64_t kStartBytes = 4, kSumBytes = 2;
  Value starts, groupSums;
};
} // namespace

/// The next tile's activations of a run are too short for the processor's own
/// prefetcher.
void BlockDots::prefetchNextTile(const Tile &tile, Value first) {
  Value next = b.add(b.mul(k, schedule.tokens), b.mul(first, kGroup));
  for (const Activations &token : tile.tokens)
    for (int64_t i = 0; i < kActivationBlock; i += ProductBuilder::kCacheLine)
      b.prefetch(b.at(b.at(token.q, next), i), ProductBuilder::CacheLevel::L1);
}

void BlockDots::storeActivationSums(const Tile &tile, Value first) {
  for (auto [t, token] : llvm::enumerate(tile.tokens)) {
    const auto number = int64_t(t) * kBlockGroups;
    Value sums = b.load(b.vector(kBlockGroups, b.getI32Type()),
                        b.at(token.sums, b.mul(first, 4)));
    if (starts)
      b.storeKept(b.mul(sums, b.constant(sums.getType(), -unpack->range.bias)),
                  b.at(starts, number * kStartBytes));
    if (groupSums)
      b.storeKept(arith::TruncIOp::create(
                      b, b.vector(kBlockGroups, b.getI16Type()), sums),
                  b.at(groupSums, number * kSumBytes));
  }
}

/// The dots of all accumulators with sub-block `sub` of group first + group.
Values BlockDots::dotsOf(const Tile &tile, const SubBlocks &in, Value first,
                         int64_t group, int64_t sub) {
  const auto tokens = size_t(schedule.tokens);
  const bool isSigned = shared == Shared::SignedBytes;
  Value g = b.add(first, b.integer(group));
  Values dots;
  for (size_t i = 0; i < tile.size; ++i) {
    Value start = b.constant(integers(), 0);
    if (starts) {
      const int64_t number = int64_t(tokenOf(i)) * kBlockGroups + group;
      start =
          b.splat(integers(), b.loadKept(b.getI32Type(),
                                         b.at(starts, number * kStartBytes)));
    }
    dots.push_back(start);
  }
  for (int64_t chunk = 0; chunk < unpack->chunks(); ++chunk) {
    SmallVector<Values> codes;
    for (Value header : in.headers)
      if (shared == Shared::Integers)
        codes.push_back(codesOf(header, in.first, first, group, chunk, 0));
    overParts(sub, [&](int64_t part) {
      const int64_t step = chunk + part * unpack->chunks();
      Values w;
      for (size_t p = 0; p < tile.panels.size(); ++p)
        w.push_back(shared == Shared::Integers
                        ? unpack->bytes(b, codes[p], chunk, part)
                        : sharedBytes(p, g, step));
      for (size_t t = 0; t < tokens; ++t) {
        Value x = activations(b.at(tile.tokens[t].q, b.mul(g, kGroup)), step);
        if (isSigned)
          x = arith::XOrIOp::create(b, x, signs[0]);
        for (size_t p = 0; p < w.size(); ++p) {
          std::unique_ptr<Dot> dot = dotFrom(dots[p * tokens + t]);
          dot->step(isSigned ? x : w[p], isSigned ? w[p] : x, step % 4);
          dots[p * tokens + t] = dot->finish();
        }
      }
      b.keepOrder(dots);
    });
  }
  return dots;
}

/// The sums of activations times the minimums' integers of a panel, of two
/// groups in an instruction.
Values BlockDots::minimumSums(const Tile &tile, size_t panel, Value first) {
  const VectorType halves = b.vector(2 * lanes, b.getI16Type());
  Values sums(tile.tokens.size(), b.constant(integers(), 0));
  for (int64_t group = 0; group < kBlockGroups; group += 2) {
    auto minimum = [&](int64_t i) {
      return sharedIntegers(panel, 1, b.add(first, b.integer(group + i)), 0)[0];
    };
    Value upper =
        arith::ShLIOp::create(b, minimum(1), b.constant(integers(), 16));
    Value both = vector::BitCastOp::create(
        b, halves, arith::OrIOp::create(b, minimum(0), upper));
    for (auto [t, sum] : llvm::enumerate(sums)) {
      const int64_t number = int64_t(t) * kBlockGroups + group;
      Value x = b.loadKept(b.getI32Type(), b.at(groupSums, number * kSumBytes));
      sum = b.intrinsic(
          integers(), "llvm.x86.avx512.vpdpwssd.512",
          {sum, both,
           vector::BitCastOp::create(b, halves, b.splat(integers(), x))});
    }
  }
  return sums;
}

Values BlockDots::subBlockSums(const Tile &tile, Value block,
                               const GroupSpan &span) {
  if (span.each != span.most)
    return GroupDots::subBlockSums(tile, block, span);
  const SubBlocks in = subBlocks(tile, block);
  prefetchNextTile(tile, span.first);
  storeActivationSums(tile, span.first);
  Values sums(tile.size, b.constant(integers(), 0));
  for (int64_t group = 0; group < kBlockGroups; ++group) {
    Value g = b.add(span.first, b.integer(group));
    for (int64_t sub = 0; sub < subDots; ++sub) {
      const Values dots = dotsOf(tile, in, span.first, group, sub);
      for (auto [i, sum] : llvm::enumerate(sums)) {
        const size_t panel = panelOf(int64_t(i));
        sum = b.add(sum, b.mul(dots[i], sharedIntegers(panel, 0, g, sub)[0]));
        if (sub + 1 == subDots && shared == Shared::SignedBytes)
          sum = b.add(sum, sharedCorrection(panel, g));
      }
      b.keepOrder(sums);
    }
  }
  Values t;
  for (size_t p = 0; p < tile.panels.size(); ++p) {
    Values minimums;
    if (groupSums)
      minimums = minimumSums(tile, p, span.first);
    for (size_t token = 0; token < tile.tokens.size(); ++token) {
      const auto i = int64_t(t.size());
      t.push_back(scaled(
          sums[size_t(i)], [&](int64_t) { return minimums[token]; },
          in.headers[p], tile, i, b.zeros(floats(), -0.0f)));
    }
    b.keepOrder(MutableArrayRef(t).take_back(tile.tokens.size()));
  }
  return t;
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const BlockDotsSchedule &schedule, ModuleOp module) {
  BlockDots(kernel, schedule, module).emit();
}
