//===- ModuleBuilder.h - What the programs of a module share ----*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_MODELS_MODULEBUILDER_H
#define QWEN_LIB_IMPORT_MODELS_MODULEBUILDER_H

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Import/Models/Programs.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>
#include <string>

namespace qwen {

/// What is special about a weight.
struct WeightTraits {
  bool isExact = false;
  /// Whether the op reads its values as a vector.
  bool isFlat = false;
};

/// Builds the module of a checkpoint: its weights, which programs share, and
/// its programs.
class ModuleBuilder {
public:
  ModuleBuilder(const Checkpoint &checkpoint, mlir::MLIRContext &context);

  const Checkpoint &checkpoint() const { return from; }
  mlir::MLIRContext *context() const { return weights.getContext(); }

  /// The symbol of the weight `name` of the checkpoint, which must have
  /// `shape`. Its location is `name`. Throws Error like Checkpoint::weight.
  mlir::FlatSymbolRefAttr weight(const std::string &name,
                                 llvm::ArrayRef<int64_t> shape,
                                 const WeightTraits &traits = {});
  /// The symbol of the vector `name` of `size` values, which `source` gives.
  mlir::FlatSymbolRefAttr vector(const std::string &name, int64_t size,
                                 SourceAttrInterface source);

  /// A program with the default limits and the facts of `config`, which begins
  /// with an empty block.
  mlir::func::FuncOp add(const ModelProgram &program, const ModelConfig &config,
                         mlir::FunctionType type);
  /// The program `name`, which has been added.
  mlir::func::FuncOp program(llvm::StringRef name) const {
    return module.get().lookupSymbol<mlir::func::FuncOp>(name);
  }
  /// The number of the first of `count` layers with caches of their own.
  int64_t addCaches(int64_t count);

  /// Whether a weight reads the tensor `name`.
  bool uses(const std::string &name) const { return used.contains(name); }
  mlir::OwningOpRef<mlir::ModuleOp> finish() { return std::move(module); }

private:
  /// Adds a weight behind the last one, and so before all programs.
  void add(const std::string &name, mlir::RankedTensorType type,
           SourceAttrInterface source, bool isExact);
  mlir::Location at(llvm::StringRef name) {
    return mlir::NameLoc::get(weights.getStringAttr(name));
  }

  const Checkpoint &from;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::OpBuilder weights;
  WeightOp last;
  /// Names of the weights that have a symbol, and of their tensors.
  std::set<std::string> symbols, used;
  int64_t layers = 0;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_MODELS_MODULEBUILDER_H
