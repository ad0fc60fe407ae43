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
  /// The instance for an op with this mnemonic. Its arguments are those of the
  /// driver function up to the first one that an instance fixes.
  std::string instance(llvm::StringRef op, Kernels kernels,
                       const AttentionShape &shape);
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

  /// The parameters cached, least, reused, together, tiles and tileCount of a
  /// product.
  std::vector<Constant> productConstants(Kernels kernels);
  std::string linear(Kernels kernels);
  std::string lmHead(Kernels kernels);
  std::string append(Kernels kernels, const AttentionShape &shape);
  std::string attention(Kernels kernels, const AttentionShape &shape);

  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_LOWER_INSTANCES_H
