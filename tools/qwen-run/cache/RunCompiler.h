//===- RunCompiler.h - qwen-opt as a process --------------------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_RUNCOMPILER_H
#define QWEN_RUN_CACHE_RUNCOMPILER_H

#include <string>
#include <vector>

namespace qwen::run {

/// `words` as a line for a shell.
std::string shellLine(const std::vector<std::string> &words);

/// Runs a compiler with `arguments` and shows its progress and its warnings.
/// Its files are private, and it inherits `lock` unless that is negative.
/// Throws Error with its last line if it fails.
void runCompiler(const std::string &compiler,
                 std::vector<std::string> arguments, int lock);

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_RUNCOMPILER_H
