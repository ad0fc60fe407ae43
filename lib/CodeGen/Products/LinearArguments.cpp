//===- LinearArguments.cpp - Arguments of products with a matrix ----------===//

#include "LinearArguments.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <bit>

using namespace qwen;
using namespace mlir;

SmallVector<Type> qwen::linearSignature(const KernelInfo &kernel,
                                        MLIRContext *context) {
  const unsigned pointers = kernel.op == KernelOp::LinearQ8 ? 7 : 5;
  SmallVector<Type> types(pointers, ProductBuilder::pointerType(context));
  types.append(5, IntegerType::get(context, 64));
  return types;
}

LinearArguments::LinearArguments(ProductBuilder &b, KernelFormat format) {
  unsigned next = 0;
  q = b.argument(next++);
  if (isQuantized(format)) {
    d = b.argument(next++);
    sums = b.argument(next++);
  }
  for (Value *value :
       {&weights, &bias, &residual, &out, &m, &k, &ld, &panelBegin, &panelEnd})
    *value = b.argument(next++);
}

Value LinearArguments::panelStride(ProductBuilder &b,
                                   WeightFormat format) const {
  Value values = b.mul(b.shiftRight(k, 5), panelGroupBytes(format));
  if (!isQuantized(format))
    return values;
  const int64_t block = weightBlock(format);
  Value blocks = b.shiftRight(b.add(k, b.integer(block - 1)),
                              std::countr_zero(uint64_t(block)));
  return b.add(values, b.mul(blocks, panelHeaderBytes(format)));
}

Value LinearArguments::activationBlocks(ProductBuilder &b) const {
  return b.shiftRight(b.add(k, b.integer(kActivationBlock - 1)), 7);
}

void LinearArguments::store(ProductBuilder &b, Value output,
                            ArrayRef<Value> rows, Values tile,
                            int64_t lanes) const {
  const auto vectors = int64_t(tile.size() / rows.size());
  Value column = b.mul(output, 4);
  auto addressOf = [&](Value base, Value r, int64_t v) {
    Value offset = b.add(b.mul(b.mul(r, ld), 4), column);
    return b.at(b.at(base, offset), b.scaled(v * lanes * 4));
  };
  auto addLoaded = [&](auto address) {
    Values sum;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value other = b.loadFloats(lanes, b.getF32Type(), address(rows[r], v));
        sum.push_back(arith::AddFOp::create(b, tile[r * vectors + v], other));
      }
    return sum;
  };
  tile = b.unlessNull(bias, tile, [&] {
    return addLoaded([&](Value, int64_t v) {
      return b.at(b.at(bias, column), b.scaled(v * lanes * 4));
    });
  });
  tile = b.unlessNull(residual, tile, [&] {
    return addLoaded(
        [&](Value r, int64_t v) { return addressOf(residual, r, v); });
  });
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t v = 0; v < vectors; ++v)
      b.store(tile[r * vectors + v], addressOf(out, rows[r], v));
}
