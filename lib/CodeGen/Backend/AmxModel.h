//===- AmxModel.h - AMX's tiles in plain IR --------------------*- C++ -*-===//
//
// The tiles of AMX are state: a configuration and eight registers of 1 KiB. A
// function whose tile instructions are modelled keeps that state in its frame.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_BACKEND_TILEMODEL_H
#define QWEN_LIB_CODEGEN_BACKEND_TILEMODEL_H

#include "llvm/IR/IntrinsicInst.h"

namespace qwen {

/// Replaces AMX's intrinsics, function by function. What the processor would
/// refuse (a configuration that is none, a tile that has no shape, shapes that
/// do not go together) is a trap, as it is there an exception.
class AmxModel {
public:
  /// `features` is the "target-features" of the functions that model.
  AmxModel(llvm::Module &module, llvm::StringRef features)
      : module(module), features(features) {}

  /// Replaces `call` and returns true where it is of AMX.
  bool replace(llvm::IntrinsicInst &call);

private:
  /// Adds the functions that model instructions to the module.
  void link();
  llvm::Value *stateOf(llvm::Function &function);

  llvm::Module &module;
  const llvm::StringRef features;
  /// The function that was met last, and its state.
  llvm::Function *current = nullptr;
  llvm::Value *state = nullptr;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_BACKEND_TILEMODEL_H
