//===- CompileFlags.h - The options of the compiler -------------*- C++ -*-===//

#ifndef QWEN_OPT_COMPILEFLAGS_H
#define QWEN_OPT_COMPILEFLAGS_H

#include "Budget.h"
#include "Calibrate.h"
#include "DraftVocabulary.h"

#include "qwen/Compiler/Compiler.h"

#include <string>
#include <vector>

namespace qwen {

/// The arguments of qwen-opt without a command. Options whose text needs more
/// than a check of its words are texts here.
struct CompileArguments {
  std::string checkpoint, output, emit, runner, weights, quantizer, kv;
  std::string chatTemplate, plan, savePlan, imatrix;
  std::vector<std::string> adapters;
  CompileOptions options;
  CalibrateFlags calibrate;
  BudgetFlags budget;
  DraftFlags drafts;
  CompileHooks hooks;
  bool verify = false, list = false, json = false;
  /// An open file descriptor, or -1.
  int32_t progress = -1;
};

/// Adds the options to `app`, which set `arguments`.
void addCompileFlags(const Command &command, CompileArguments &arguments);

} // namespace qwen

#endif // QWEN_OPT_COMPILEFLAGS_H
