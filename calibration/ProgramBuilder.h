//===- ProgramBuilder.h - Programs of parts of a model ----------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_PROGRAMBUILDER_H
#define QWEN_CALIBRATION_PROGRAMBUILDER_H

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/IRMapping.h"

#include <optional>
#include <utility>

namespace qwen {

/// The type of ids or positions, tensor<?xi32>.
mlir::Type integersType(mlir::MLIRContext *context);
/// The type of activations of `width` values, tensor<?xWxf32>.
mlir::Type activationsType(mlir::MLIRContext *context, int64_t width);

/// A program made of copies of ops of another one.
class ProgramBuilder {
public:
  /// A public function `name` with these arguments, at the end of `module`.
  /// It has the model of `original`, whose ops it copies.
  ProgramBuilder(mlir::ModuleOp module, llvm::StringRef name,
                 mlir::func::FuncOp original, mlir::TypeRange arguments);

  mlir::func::FuncOp program() const { return function; }
  mlir::Value argument(unsigned i) { return function.getArgument(i); }
  /// Names the rows of argument `i`. The caller gives them, or program `from`
  /// leaves them in the arena.
  void nameArgument(unsigned i, llvm::StringRef name,
                    llvm::StringRef from = "");
  /// Sets the most tokens and wanted tokens of a call.
  void setLimits(int64_t tokens, int64_t rows);

  /// Copies read `to` in place of `value`.
  void map(mlir::Value value, mlir::Value to) { copies.map(value, to); }
  /// Ops that are copied from now on use the caches of `layer`.
  void useCachesOf(int64_t layer) { cacheLayer = layer; }
  /// The copy of `value`: of its op and of all that it reads, unless they are
  /// copied or mapped. Attention comes with the op that appends to its cache.
  /// No op may read an argument that is not mapped.
  mlir::Value copy(mlir::Value value);

  /// Ends the program with these results; those without a name are logits.
  void finish(llvm::ArrayRef<std::pair<std::string, mlir::Value>> results);

private:
  void copyOp(mlir::Operation *op);

  mlir::OpBuilder builder;
  mlir::func::FuncOp function;
  mlir::IRMapping copies;
  std::optional<int64_t> cacheLayer;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_PROGRAMBUILDER_H
