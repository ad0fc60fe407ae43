//===- FunctionTypes.h - C signatures as types of MLIR ----------*- C++ -*-===//

#ifndef QWEN_CODEGEN_FUNCTIONTYPES_H
#define QWEN_CODEGEN_FUNCTIONTYPES_H

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "qwen/ABI/KernelOps.h"

namespace qwen {

/// A C type of the signatures: a pointer, float, bool or an integer.
template <typename T> mlir::Type typeOf(mlir::MLIRContext *context) {
  if constexpr (std::is_pointer_v<T>)
    return mlir::LLVM::LLVMPointerType::get(context);
  else if constexpr (std::is_same_v<T, float>)
    return mlir::Float32Type::get(context);
  else if constexpr (std::is_same_v<T, bool>)
    return mlir::IntegerType::get(context, 1);
  else
    return mlir::IntegerType::get(context, 8 * sizeof(T));
}

/// The type of a function, whose address is not used.
template <typename Result, typename... Parameters>
mlir::FunctionType typeOf(Result (*)(Parameters...),
                          mlir::MLIRContext *context) {
  llvm::SmallVector<mlir::Type, 1> results;
  if constexpr (!std::is_void_v<Result>)
    results.push_back(typeOf<Result>(context));
  return mlir::FunctionType::get(context, {typeOf<Parameters>(context)...},
                                 results);
}

/// The type of the kernels of a kind.
inline mlir::FunctionType kernelType(KernelOp op, mlir::MLIRContext *context) {
  return visitKernelOp(op, [&]<KernelOp Op>() {
    return typeOf(static_cast<KernelFn<Op> *>(nullptr), context);
  });
}

} // namespace qwen

#endif // QWEN_CODEGEN_FUNCTIONTYPES_H
