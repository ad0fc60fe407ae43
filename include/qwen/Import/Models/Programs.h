//===- Programs.h - The programs of a model ---------------------*- C++ -*-===//

#ifndef QWEN_IMPORT_MODELS_PROGRAMS_H
#define QWEN_IMPORT_MODELS_PROGRAMS_H

#include "qwen/ABI/Program.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/Checkpoint.h"

#include <span>
#include <string_view>

namespace qwen {

class ModuleBuilder;

/// A program that importCheckpoint builds.
struct ModelProgram {
  /// The name of its function.
  std::string_view name;
  ModelScope scope;
  /// Appends it to the module. Throws Error like importCheckpoint.
  void (*build)(ModuleBuilder &module, const ModelProgram &program);
  /// Its configuration, if the checkpoint has it.
  ScopeConfigFn *config = textConfig;
  /// Gives its ops their weights.
  ScopeDivideFn *divide = divideLayers;
};

// The kinds of programs: a file each of lib/Import/Models.
#define QWEN_PROGRAM(Kind, Name, Tensors, Ops)                                 \
  void build##Kind(ModuleBuilder &module, const ModelProgram &program);        \
  ScopeConfigFn configOf##Kind;                                                \
  ScopeDivideFn divide##Kind;
#include "qwen/Import/Models/Programs.def"

inline constexpr ModelProgram kModelPrograms[] = {
#define QWEN_PROGRAM(Kind, Name, Tensors, Ops)                                 \
  {Name, {Tensors, Ops}, build##Kind, configOf##Kind, divide##Kind},
#include "qwen/Import/Models/Programs.def"
};

} // namespace qwen

#endif // QWEN_IMPORT_MODELS_PROGRAMS_H
