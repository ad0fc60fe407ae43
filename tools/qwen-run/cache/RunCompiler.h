//===- RunCompiler.h - qwen-opt as a process --------------------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_RUNCOMPILER_H
#define QWEN_RUN_CACHE_RUNCOMPILER_H

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qwen::run {

/// `words` as a line for a shell.
std::string shellLine(const std::vector<std::string> &words);

/// Receives that `done` of `total` parts of a stage of a compile are done. What
/// it throws ends the compile.
using CompileProgressFn = std::function<void(const std::string &stage,
                                             uint64_t done, uint64_t total)>;

/// Runs a compiler with `arguments` and shows its warnings and, unless
/// `progress` gets it, its progress. Its files are private, and it inherits
/// `lock` unless that is negative. Throws Error with its last line if it fails.
void runCompiler(const std::string &compiler,
                 std::vector<std::string> arguments, int lock,
                 const CompileProgressFn &progress = {});

/// Bytes of memory that `checkpoint` needs when it is compiled in the format
/// `weights` of --weights, or by default if that is empty, as `qwen-opt info`
/// knows; nothing if that fails.
std::optional<uint64_t> neededMemory(const std::string &compiler,
                                     const std::string &checkpoint,
                                     const std::string &weights);

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_RUNCOMPILER_H
