//===- RunCompiler.h - qwen-opt as a process --------------------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_RUNCOMPILER_H
#define QWEN_RUN_CACHE_RUNCOMPILER_H

#include <cstdint>
#include <optional>
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

/// Bytes of memory that `checkpoint` needs when it is compiled in the format
/// `weights` of --weights, or by default if that is empty, as `qwen-opt info`
/// knows; nothing if that fails.
std::optional<uint64_t> neededMemory(const std::string &compiler,
                                     const std::string &checkpoint,
                                     const std::string &weights);

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_RUNCOMPILER_H
