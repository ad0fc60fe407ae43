//===- Structs.cpp - Structs of the driver as memory ----------------------===//

#include "qwen/CodeGen/FunctionTypes.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/CodeGen/Schedule/Schedule.h"
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

/// Appends the value of a field, and the number of tiles behind their address.
static void append(SmallVectorImpl<Value> &values,
                   ImplicitLocOpBuilder &builder, Attribute field) {
  const auto i64 = [&](int64_t number) -> Value {
    return arith::ConstantIntOp::create(builder, number, 64);
  };
  if (auto kernel = dyn_cast<KernelAttr>(field)) {
    values.push_back(addressOf(builder, kernel));
  } else if (auto list = dyn_cast<ArrayAttr>(field)) {
    SmallVector<Value> tiles; // Each a DriverTile.
    for (auto tile : list.getAsRange<KernelAttr>()) {
      const TokenSplit split = tokenSplit(*tile.getInfo());
      tiles.append({addressOf(builder, tile), i64(split.multiple),
                    i64(split.least), i64(split.rest)});
    }
    values.append(
        {store(builder, tiles), i64(static_cast<int64_t>(list.size()))});
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
