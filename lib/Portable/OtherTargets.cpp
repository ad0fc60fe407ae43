//===- OtherTargets.cpp - Parts of LLVM that a portable qwen-opt lacks ----===//
//
// lld starts all targets of LLVM, and its link time optimization, which
// qwen-opt never runs, starts Polly. Here these functions do nothing, so that
// the program has neither.
//
//===----------------------------------------------------------------------===//

#include "llvm/Plugins/PassPlugin.h"

// The declarations are LLVM's macros.
#define QWEN_NOTHING(Function)                                                 \
  extern "C" void Function();                                                  \
  extern "C" void Function() {}
#include "OtherTargets.inc"

// NOLINTNEXTLINE(misc-use-internal-linkage): lld calls it
llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo() { return {}; }
