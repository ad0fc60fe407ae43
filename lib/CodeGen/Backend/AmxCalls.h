//===- AmxCalls.h - Calls of the model of AMX -------------------*- C++ -*-===//
//
// AMX has state: a configuration and eight tile registers of 1 KiB. A function
// with modelled AMX instructions keeps that state in its stack frame.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_BACKEND_AMXCALLS_H
#define QWEN_LIB_CODEGEN_BACKEND_AMXCALLS_H

#include "llvm/IR/IntrinsicInst.h"

namespace qwen {

/// Replaces AMX's intrinsics, function by function. A trap replaces each
/// exception of the processor (an invalid configuration, a tile register
/// without a shape, shapes that do not match).
class AmxModel {
public:
  /// `features` is the "target-features" of the functions that model
  /// instructions.
  AmxModel(llvm::Module &module, llvm::StringRef features)
      : module(module), features(features) {}

  /// Replaces `call` and returns true if it is an intrinsic of AMX.
  bool replace(llvm::IntrinsicInst &call);

private:
  /// Adds the functions that model instructions.
  void link();
  llvm::Value *stateOf(llvm::Function &function);

  llvm::Module &module;
  const llvm::StringRef features;
  /// The last function and its state.
  llvm::Function *current = nullptr;
  llvm::Value *state = nullptr;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_BACKEND_AMXCALLS_H
