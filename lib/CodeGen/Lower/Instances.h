//===- Instances.h - Driver functions with what they fix --------*- C++ -*-===//
//
// `forward` calls one function for each op, with the address of the op's
// arguments. Such an instance passes it on to a function of the driver
// (Driver.h) and adds what it fixes: kernels, schedules, shapes. LLVM inlines
// the driver function into it. Ops that fix the same share an instance, which
// is never inlined, so that code stays small.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
#define QWEN_LIB_CODEGEN_LOWER_INSTANCES_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "qwen/Dialect/QwenDialect.h"

#include "llvm/ADT/DenseMap.h"

#include <string>

namespace qwen {

/// Adds to a module the functions that `forward` calls. The first call of a
/// member adds its function; every call returns the function's name.
class Instances {
public:
  explicit Instances(mlir::ModuleOp module);

  std::string barrier();
  std::string trace();
  /// The instance that `call` needs, a ForwardFn with the address of the call's
  /// arguments in place of the number of threads.
  std::string instance(const DriverCall &call);

private:
  /// Declares a function if the module has none of that name; returns the name.
  std::string declare(llvm::StringRef name, mlir::FunctionType type);

  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
  /// Names of instances by their functions and what they fix.
  llvm::DenseMap<mlir::Attribute, std::string> names;
};

/// The plan of a product by the schedule of its GEMM.
ProductPlan productPlan(const KernelInfo &gemv, const KernelInfo &gemm);

/// Tokens of a unit of attention with `groupQueries` queries a token: about a
/// strip of queries, and whole tiles of them where tokens allow it.
int64_t attentionTokens(const KernelInfo &scores, int64_t groupQueries);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
