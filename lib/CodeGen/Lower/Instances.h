//===- Instances.h - Driver functions with their constants ------*- C++ -*-===//
//
// `forward` calls one function for each op, with the op's places and sizes as
// arguments. Such an instance passes them on to a function of the driver
// (Driver.h) and adds constants: kernels, schedules, shapes. LLVM inlines the
// driver function into it. Layers with the same constants share an instance,
// which is never inlined, so that code stays small.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
#define QWEN_LIB_CODEGEN_LOWER_INSTANCES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelTable.h"

#include <string>
#include <variant>
#include <vector>

namespace qwen {

/// The shapes of attention, the same in all layers of a model.
struct AttentionShape {
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t layers;
  KvFormat format;

  /// Bytes of the keys and values of one layer in a page.
  int64_t layerBytes() const {
    return 2 * kvHeads * headDim * kPageTokens * kvElementBytes(format);
  }
  int64_t pageBytes() const { return layers * layerBytes(); }
};

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
  std::string embedding(const KernelInfo &kernel);
  std::string ropeTable(const KernelInfo &kernel);
  /// rmsNormF32 or rmsNormQ8, by the kind of the kernel.
  std::string rmsNorm(const KernelInfo &kernel);
  std::string hiddenRows(const KernelInfo &norm, const KernelInfo &check);
  std::string quantize(const KernelInfo &kernel);
  /// swiGluF32 or swiGluQ8.
  std::string swiGlu(const KernelInfo &kernel);
  /// linearF32 or linearQ8. `gemm` may be null.
  std::string linear(const KernelInfo &gemv, const KernelInfo *gemm);
  std::string lmHead(const KernelInfo &gemv, const KernelInfo *gemm,
                     const KernelInfo &check);
  std::string append(const AttentionShape &shape, const KernelInfo &rope,
                     const KernelInfo &appendK, const KernelInfo &appendV);
  std::string attention(const AttentionShape &shape, const KernelInfo &rope,
                        const KernelInfo &scores, const KernelInfo &values,
                        const KernelInfo &softmax, const KernelInfo &merge,
                        const KernelInfo &finish);

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
  /// `constants`; returns the name.
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

  /// The parameters cached, least, together, tiles and tileCount of a product.
  std::vector<Constant> productConstants(const KernelInfo &gemv,
                                         const KernelInfo *gemm);

  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
