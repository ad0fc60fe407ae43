//===- HeldOrder.h - Dots in the order of their code ------------*- C++ -*-===//
//
// GroupDots where registers are short: code runs in the order in which it is
// emitted, with the sums of a block on the stack, where a group reads and
// writes each once. A tile's sums and dots fill all registers of AVX2. LLVM
// moves loads ahead and reorders additions, so it would also keep activations
// in registers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_HELDORDER_H
#define QWEN_LIB_CODEGEN_PRODUCTS_HELDORDER_H

#include "GroupDots.h"
#include <algorithm>

namespace qwen {

class HeldOrder : public GroupDots {
public:
  HeldOrder(const KernelInfo &kernel, const KernelSchedule &schedule,
            mlir::ModuleOp module)
      : GroupDots(kernel, schedule, module),
        memory(b.scratch(std::max<int64_t>(schedule.streams, 1) *
                             schedule.tokens * vectors * bytes,
                         bytes)) {}

protected:
  void addGroup(const Group &group) override;

  /// Bytes of a vector.
  const int64_t bytes = 4 * lanes;

  bool held() const override { return true; }
  Values startSums(Value zero, size_t count) override {
    Values carried;
    for (size_t i = 0; i < count; ++i)
      setSum(carried, int64_t(i), zero);
    return carried;
  }
  Value sum(const Values &, mlir::VectorType type, int64_t i) override {
    return b.loadKept(type, b.at(memory, i * bytes));
  }
  void setSum(Values &, int64_t i, Value value) override {
    b.storeKept(value, b.at(memory, i * bytes));
  }

private:
  void addChunk(llvm::ArrayRef<Value> panels, int64_t chunk, int64_t sub,
                llvm::ArrayRef<Value> q,
                llvm::ArrayRef<std::unique_ptr<Dot>> dots);

  Value memory;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_HELDORDER_H
