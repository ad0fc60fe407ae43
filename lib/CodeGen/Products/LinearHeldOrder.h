//===- LinearHeldOrder.h - Products in the order of their code --*- C++ -*-===//
//
// Where registers are short, code is to run in the order in which it is
// emitted, with the sums of a block on the stack, where a group reads and
// writes each once. A tile's sums and dots would be all of AVX2's registers,
// and LLVM, which moves loads ahead and adds to what is ready, would keep
// activations there as well.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_LINEARHELDORDER_H
#define QWEN_LIB_CODEGEN_PRODUCTS_LINEARHELDORDER_H

#include "LinearTile.h"

namespace qwen {

/// Whether the order of the tile's code is to be held.
bool holdsOrder(const LinearTile &tile);

/// The sums of a block so far, of panels that are done together.
class HeldSums {
public:
  /// Takes memory of the function for them.
  explicit HeldSums(LinearTile &tile);

  Value load(mlir::VectorType type, int64_t i);
  void store(Value sum, int64_t i);
  /// All of them.
  Values load(mlir::VectorType type, size_t count);
  void store(llvm::ArrayRef<Value> sums);

private:
  LinearTile &tile;
  Value memory;
};

/// groupDots from zero for several panels, whose chunks begin at `chunks`: i =
/// (panel * rows + row) * vectors + vector.
void heldDots(LinearTile &tile, llvm::ArrayRef<Value> chunks, Value column,
              llvm::ArrayRef<Value> q, UseDot use);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_LINEARHELDORDER_H
