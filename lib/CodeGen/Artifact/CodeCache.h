//===- CodeCache.h - Machine code of earlier compiles -----------*- C++ -*-===//
//
// Most of a small model's compile is LLVM's work. Kernels do not depend on the
// model, and models of one shape have the same programs. A process remembers
// their code; who compiles many models can keep it in a folder.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_CODECACHE_H
#define QWEN_CODEGEN_ARTIFACT_CODECACHE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <vector>

namespace qwen {

/// The object file of the code that `identity` describes. It comes from an
/// earlier call in this process, or, if the environment variable
/// QWEN_CODE_CACHE names a folder, from what an earlier call of this program,
/// in this or another process, has put there. Otherwise it is the result of
/// `generate`, which is then kept. Other programs, and other builds of this
/// one, do not share its files. The folder must belong to a user who is
/// trusted: it has machine code. Several threads may call it at the same time.
/// Throws what `generate` does, and Error if the folder cannot be used.
std::vector<char>
cachedObject(llvm::StringRef identity,
             llvm::function_ref<std::vector<char>()> generate);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_CODECACHE_H
