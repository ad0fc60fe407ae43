//===- PairDots.cpp - The order of tiles of smmla -------------------------===//
//
// GroupDots where an instruction multiplies 8 activations of two tokens with 8
// weights of two outputs: each 128 bits of accumulator v of token 2p have two
// outputs of the lower half of vector v, for tokens 2p and 2p + 1; those of
// accumulator v of token 2p + 1 have two of the upper half.
//
//===----------------------------------------------------------------------===//

#include "GroupDots.h"

using namespace qwen;
using namespace mlir;

namespace {
class PairDots final : public GroupDots {
public:
  using GroupDots::GroupDots;

private:
  void addGroup(const Group &group) override;

  Value forToken(VectorType type, OfToken scalar, int64_t i) override {
    const size_t first = tokenOf(i) & ~size_t{1};
    return b.permuted("trn", 64, b.splat(type, scalar(first)),
                      b.splat(type, scalar(first + 1)), false);
  }
  Value forOutputs(Value values, int64_t i) override {
    return b.permuted("zip", 64, values, values, tokenOf(i) % 2 != 0);
  }
  Value correction(OfToken activationSum, int64_t i) override {
    if (unpack->range.bias == 0)
      return nullptr;
    return lacking(forToken(integers(), activationSum, i), i);
  }
  float magic(int64_t) const override { return kMagic; }

  SmallVector<Values> tileSums(ArrayRef<Panel> panels, Value output,
                               ArrayRef<Value> tokens) override;
  SmallVector<Values> pairActivations(ArrayRef<Value> q);
};
} // namespace

/// Of each pair of tokens: activations 8 * step .. 8 * step + 7 of a group.
SmallVector<Values> PairDots::pairActivations(ArrayRef<Value> q) {
  SmallVector<Values> x;
  for (int64_t t = 0; t < schedule.tokens; t += 2) {
    Values &pair = x.emplace_back();
    for (int64_t step = 0; step < kGroup / 8; ++step)
      pair.push_back(b.permuted("trn", 64, activations(q[t], 2 * step),
                                activations(q[t + 1], 2 * step),
                                step % 2 != 0));
  }
  return x;
}

void PairDots::addGroup(const Group &group) {
  const int64_t steps = unpack->chunks() / 2;
  const Values starts = startsOf(group);
  for (size_t p = 0; p < group.panels; ++p) {
    Value panel = group.chunks(p);
    const SmallVector<Values> x = pairActivations(group.q);
    Value chunks = b.at(panel, b.mul(group.output, 4));
    for (int64_t v = 0; v < vectors; ++v)
      for (int64_t sub = 0; sub < subDots; ++sub) {
        auto index = [&](size_t half, size_t pair) {
          return int64_t(p * schedule.tokens + 2 * pair + half) * vectors + v;
        };
        SmallVector<std::unique_ptr<Dot>> dots[2];
        for (size_t half : {0, 1})
          for (size_t pair = 0; pair < x.size(); ++pair)
            dots[half].push_back(
                dotFrom(starts[index(half, pair) * subDots + sub]));
        for (int64_t step = 0; step < steps; ++step) {
          auto load = [&](int64_t i, bool) { return loadVector(chunks, i, v); };
          const Values even = unpack->codes(b, 2 * step, load);
          const Values odd = unpack->codes(b, 2 * step + 1, load);
          for (size_t half : {0, 1}) {
            // 8 bytes of two outputs, from two chunks with 4 of each.
            Values codes;
            for (auto [first, second] : llvm::zip_equal(even, odd))
              codes.push_back(b.permuted("zip", 32, first, second, half != 0));
            overParts(sub, [&](int64_t part) {
              Value w = unpack->bytes(b, codes, 2 * step, part);
              for (auto [dot, pair] : llvm::zip_equal(dots[half], x))
                dot->step(w, pair[step + part * steps], 0);
            });
          }
        }
        for (size_t half : {0, 1})
          for (size_t pair = 0; pair < x.size(); ++pair)
            group.use(index(half, pair), sub, dots[half][pair]->finish());
      }
  }
}

SmallVector<Values> PairDots::tileSums(ArrayRef<Panel> panels, Value output,
                                       ArrayRef<Value> tokens) {
  SmallVector<Values> tiles = GroupDots::tileSums(panels, output, tokens);
  for (Values &sums : tiles)
    for (int64_t i = 0; i < int64_t(sums.size()); ++i)
      if (tokenOf(i) % 2 == 0) {
        Value &first = sums[i], &second = sums[i + vectors];
        Value low = first, high = second;
        first = b.permuted("uzp", 64, low, high, false);
        second = b.permuted("uzp", 64, low, high, true);
      }
  return tiles;
}

void qwen::emitOrder(const KernelInfo &kernel, const PairDotsSchedule &schedule,
                     ModuleOp module) {
  PairDots(kernel,
           {schedule.tokens, schedule.vectors, schedule.unroll,
            schedule.prefetch, schedule.streams},
           module)
      .emit();
}
