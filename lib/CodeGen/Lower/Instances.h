//===- Instances.h - Driver functions with their constants ------*- C++ -*-===//
//
// `forward` calls one function for each op, with the op's places and sizes as
// arguments. Such an instance passes them on to a function of the driver
// (Driver.h) and adds constants: kernels, schedules, shapes. LLVM inlines the
// driver function into it. Ops with the same constants share an instance,
// which is never inlined, so that code stays small.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
#define QWEN_LIB_CODEGEN_LOWER_INSTANCES_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "qwen/CodeGen/Lower/Caches.h"

#include <string>
#include <variant>
#include <vector>

namespace qwen {

/// The kernels of an op, in the order of its `kernels`.
using Kernels = llvm::ArrayRef<const KernelInfo *>;

/// Adds to a module the functions that `forward` calls. The first call of a
/// member adds its function; every call returns the function's name. The
/// function takes the arguments of the driver function with the same name, up
/// to the first one that an instance fixes.
class Instances {
public:
  explicit Instances(mlir::ModuleOp module);

  std::string barrier();
  std::string trace();
  std::string wantHidden();
  /// The instance for an op whose cache, if it has one, lies at `place`. Its
  /// arguments are those of the driver function up to the first one that an
  /// instance fixes.
  std::string instance(ForwardOp op, const CachePlace &place);
  std::string hiddenRows(const KernelInfo &norm, const KernelInfo &check);

private:
  /// A function of the driver: its symbol and its type.
  struct Function {
    std::string name;
    mlir::FunctionType type;
  };
  /// Memory of so many floats, aligned to 64 bytes.
  struct Scratch {
    int64_t floats;
  };
  /// The kernels of a product, from the largest M to 1.
  using Tiles = std::vector<const KernelInfo *>;
  /// What an instance adds to the arguments. A null kernel is a null pointer.
  using Constant =
      std::variant<int64_t, float, const KernelInfo *, Scratch, Tiles>;

  /// Adds the instance `name` of `driver`, whose last parameters are
  /// `constants`; returns the name, which must tell instances with other
  /// constants apart.
  std::string add(const std::string &name, const Function &driver,
                  llvm::ArrayRef<Constant> constants);
  /// Declares a function if the module has none of that name; returns the name.
  std::string declare(const Function &function);

  // A constant in the instance that is made now.
  mlir::Value value(int64_t number);
  mlir::Value value(float number);
  mlir::Value value(const KernelInfo *kernel);
  mlir::Value value(Scratch scratch);
  mlir::Value value(const Tiles &tiles);
  /// Memory on the stack, aligned to 64 bytes.
  mlir::Value allocate(mlir::Type element, int64_t count);

  /// The parameters cached, least, reused, together, tiles and tileCount of a
  /// product.
  std::vector<Constant> productConstants(Kernels kernels);
  std::string linear(Kernels kernels);
  std::string lmHead(Kernels kernels);
  /// Bytes of a key's or value's element in the cache.
  int64_t cacheElementBytes();
  std::string append(AppendOp op, Kernels kernels, const CachePlace &place);
  std::string attention(AttentionOp op, Kernels kernels,
                        const CachePlace &place);
  std::string deltaRule(DeltaRuleOp op, Kernels kernels,
                        const CachePlace &place);

  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
