//===- Code.h - The code of one file ----------------------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_ARTIFACT_CODE_H
#define QWEN_CODEGEN_ARTIFACT_CODE_H

#include "qwen/CodeGen/Artifact/TargetCode.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qwen {

struct KernelInfo;

/// The code of all targets of a file, in parts that threads can generate side
/// by side: each program of each target with the driver, each kernel that they
/// call, and the entry table. There must be at least one target, and all must
/// have the same architecture.
class Code {
public:
  explicit Code(llvm::ArrayRef<TargetCode> targets);

  size_t parts() const { return list.size() + 1; }

  /// A text of all that the code of part `i` depends on: of a program, its
  /// functions. "" of the entry table, which takes no time.
  std::string identity(size_t i);

  /// The optimized code of part `i`. Throws Error.
  std::unique_ptr<llvm::Module> generate(size_t i, llvm::LLVMContext &context);

  /// The target that all parts share: they differ in features and names.
  const Target &target() const { return targets.front().target; }

private:
  struct Part {
    const TargetCode *code;
    /// Null for a program.
    const KernelInfo *kernel;
    /// The exported function.
    std::string entry;
  };
  std::unique_ptr<llvm::Module> generateProgram(const Part &part,
                                                llvm::LLVMContext &context);

  llvm::ArrayRef<TargetCode> targets;
  std::vector<Part> list;
  /// The modules of all targets are in one MLIRContext, which is for one
  /// thread.
  std::mutex mlir;
};

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_CODE_H
