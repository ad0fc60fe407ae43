//===- LinearTile.cpp - The parts of a product with a matrix --------------===//

#include "LinearTile.h"

using namespace qwen;
using namespace mlir;

LinearTile::LinearTile(const KernelInfo &kernel, const KernelSchedule &schedule,
                       ModuleOp module)
    : kernel(kernel), schedule(schedule), format(*weightFormat(kernel.format)),
      lanes(isaInfo(kernel.isa).lanes), vectors(schedule.vectors),
      groupBytes(panelGroupBytes(format)),
      b(kernel, module, linearSignature(kernel, module.getContext())) {}

bool LinearTile::inPairs() const { return isaInfo(kernel.isa).dot.tokens == 2; }

bool LinearTile::isCorrected() const {
  return !isEightBits() || isaInfo(kernel.isa).dot.isUnsigned;
}

Values qwen::overGroups(LinearTile &tile, const GroupSpan &span,
                        ArrayRef<Value> carried,
                        ProductBuilder::LoopBody body) {
  ProductBuilder &b = tile.b;
  auto pass = [&](Value g, ValueRange before) {
    Values values(before);
    for (int64_t i = 0; i < span.each; ++i)
      values = body(b.add(g, b.integer(i)), values);
    return values;
  };
  if (span.each == kBlockGroups)
    return pass(span.first, carried);
  return b.loop(span.first, span.last, span.each, carried, pass);
}
