//===- Chains.cpp - Chains of fma along K ---------------------------------===//
//
// Products with weights in f32 and bf16. The innermost loop goes along K, a
// value of each token and a line of weights a step, 4 steps at once on Arm. The
// sums of a tile stay in registers. Nothing is unpacked but bf16, as it is
// loaded. PageChains.cpp has the chains, too.
//
//              tokens of a tile
//   panel  k   +----------------+
//   of 16  |   | fma chains     |   a chain for each token and vector of
//          v   +----------------+   outputs; then the next tile, then panel
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace qwen;
using namespace mlir;

Values ProductBuilder::chains(ArrayRef<Value> x, Value weights, Value stride,
                              Type stored, Value count, int64_t columns,
                              int64_t lanes, const ReadAhead &ahead) {
  const VectorType type = vector(lanes, f32);
  const int64_t vectors = columns / lanes;
  const int64_t vectorBytes = lanes * stored.getIntOrFloatBitWidth() / 8;
  auto loadLine = [&](Value step) {
    for (int64_t i = 0; i < ahead.lines; ++i)
      prefetch(at(at(ahead.pointer, step, ahead.stride), i * kCacheLine));
    Value line = at(weights, step, stride);
    Values w;
    for (int64_t v = 0; v < vectors; ++v)
      w.push_back(loadFloats(lanes, stored, at(line, scaled(v * vectorBytes))));
    return w;
  };
  auto addStep = [&](Value step, ValueRange sums) {
    const Values w = loadLine(step);
    Values result;
    for (auto [r, row] : llvm::enumerate(x)) {
      Value factor = splat(type, load(f32, at(row, step, 4)));
      for (int64_t v = 0; v < vectors; ++v)
        result.push_back(fma(w[v], factor, sums[r * vectors + v]));
    }
    return result;
  };
  // An fma of Arm multiplies by one of four factors in a register, where a
  // splat takes a slot of its own. Four steps of four rows at a time fit in the
  // eight registers that such a factor may be in with SVE.
  auto addFourSteps = [&](Value step, ValueRange before) {
    Values w[4];
    for (int64_t i = 0; i < 4; ++i)
      w[i] = loadLine(add(step, i));
    Values sums(before);
    for (size_t first = 0; first < x.size(); first += 4) {
      const ArrayRef<Value> rows = x.drop_front(first).take_front(4);
      Values factors;
      for (Value row : rows)
        factors.push_back(loadQuad(f32, at(row, step, 4)));
      for (int64_t i = 0; i < 4; ++i)
        for (size_t r = 0; r < rows.size(); ++r)
          for (int64_t v = 0; v < vectors; ++v) {
            Value &sum = sums[(first + r) * vectors + v];
            if (scalable)
              sum = intrinsic(type, "llvm.aarch64.sve.fmla.lane.nxv4f32",
                              {sum, w[i][v], factors[r], constant(i32, i)});
            else
              sum = fma(
                  w[i][v],
                  splat(type, vector::ExtractOp::create(*this, factors[r], i)),
                  sum);
          }
    }
    return sums;
  };
  Values sums(x.size() * vectors, zeros(type));
  Value done = integer(0);
  if (arch == Arch::AArch64) {
    Value whole = mul(div(count, 4), 4);
    sums = loop(done, whole, 4, sums, addFourSteps);
    done = whole;
  }
  return loop(done, count, 1, sums, addStep);
}

void qwen::emitOrder(const KernelInfo &kernel, const ChainsSchedule &schedule,
                     ModuleOp module) {
  Product p(kernel, module, ByteForm::Exact);
  ProductBuilder &b = p.b;
  TileLoops loops(p, schedule.tokens, schedule.vectors);
  const Type stored = p.format == WeightFormat::BF16 ? b.getBF16Type() : b.f32;
  const int64_t bytes = stored.getIntOrFloatBitWidth() / 8;
  loops.overTiles(
      false, [&](ArrayRef<Panel> panels, Value output, ArrayRef<Value> tokens) {
        Values x;
        for (Value token : tokens)
          x.push_back(b.at(p.q, b.mul(token, p.k), 4));
        return b.chains(x, b.at(panels.front().weights, output, bytes),
                        b.integer(kPanelOutputs * bytes), stored, p.k,
                        loops.vectors * loops.lanes, loops.lanes);
      });
}
