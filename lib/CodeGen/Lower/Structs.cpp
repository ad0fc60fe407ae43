//===- Structs.cpp - Structs of the driver as memory ----------------------===//

#include "qwen/CodeGen/FunctionTypes.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace qwen;

static Type pointerType(OpBuilder &builder) {
  return LLVM::LLVMPointerType::get(builder.getContext());
}

static Value allocate(ImplicitLocOpBuilder &builder, Type element,
                      int64_t count) {
  return LLVM::AllocaOp::create(
      builder, pointerType(builder), element,
      arith::ConstantIntOp::create(builder, count, 64), /*alignment=*/64);
}

/// Memory on the stack with `values` where a C struct has them.
static Value store(ImplicitLocOpBuilder &builder, ValueRange values) {
  const auto type = LLVM::LLVMStructType::getLiteral(
      builder.getContext(), llvm::to_vector(values.getTypes()));
  Value memory = allocate(builder, type, 1);
  for (auto [i, value] : llvm::enumerate(values))
    LLVM::StoreOp::create(
        builder, value,
        LLVM::GEPOp::create(
            builder, pointerType(builder), type, memory,
            ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)}));
  return memory;
}

static Value addressOf(ImplicitLocOpBuilder &builder, KernelAttr kernel) {
  const KernelInfo &info = *kernel.getInfo();
  Value function = func::ConstantOp::create(
      builder, kernelType(info.op, builder.getContext()), StringRef(info.name));
  return UnrealizedConversionCastOp::create(builder, pointerType(builder),
                                            function)
      .getResult(0);
}

/// Appends the value of a field, and the number of structs behind their
/// address.
static void append(SmallVectorImpl<Value> &values,
                   ImplicitLocOpBuilder &builder, Attribute field) {
  if (auto kernel = dyn_cast<KernelAttr>(field)) {
    values.push_back(addressOf(builder, kernel));
  } else if (auto list = dyn_cast<ArrayAttr>(field)) {
    // Structs in memory, and their number.
    SmallVector<Value> elements;
    for (auto fields : list.getAsRange<ArrayAttr>())
      for (Attribute each : fields)
        append(elements, builder, each);
    values.append({store(builder, elements),
                   arith::ConstantIntOp::create(
                       builder, static_cast<int64_t>(list.size()), 64)});
  } else if (auto type = dyn_cast<TypeAttr>(field)) {
    auto memory = dyn_cast<MemRefType>(type.getValue());
    values.push_back(memory
                         ? allocate(builder, memory.getElementType(),
                                    memory.getNumElements())
                         : LLVM::ZeroOp::create(builder, pointerType(builder)));
  } else {
    values.push_back(
        arith::ConstantOp::create(builder, cast<TypedAttr>(field)));
  }
}

void qwen::expandStructs(ModuleOp module) {
  int64_t constants = 0;
  module.walk([&](StructOp op) {
    ImplicitLocOpBuilder builder(op.getLoc(), op);
    SmallVector<Value> values;
    for (Attribute field : op.getValues())
      append(values, builder, field);
    const bool onlyNumbers =
        llvm::all_of(op.getValues(), llvm::IsaPred<IntegerAttr, FloatAttr>);
    Value address;
    if (onlyNumbers) {
      const std::string name = "arguments." + std::to_string(constants++);
      address = LLVM::AddressOfOp::create(builder, pointerType(builder), name);
      builder.setInsertionPointToStart(module.getBody());
      LLVM::GlobalOp::create(
          builder,
          LLVM::LLVMStructType::getLiteral(
              module.getContext(),
              llvm::to_vector(ValueRange(values).getTypes())),
          /*isConstant=*/true, LLVM::Linkage::Private, name, op.getValues());
    } else {
      address = store(builder, values);
    }
    op.getAddress().replaceAllUsesWith(address);
    op.erase();
  });
}
