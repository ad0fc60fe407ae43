//===- CompilerProgram.h - The compiler beside this program -----*- C++ -*-===//
//
// qwen-run has no compiler (LLVM) of its own: it runs `qwen-opt`.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_COMPILERPROGRAM_H
#define QWEN_RUN_COMPILERPROGRAM_H

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::run {

/// The folder of this program; empty if the system does not say it.
std::filesystem::path programFolder();

/// The path of `qwen-opt`: in `folder`, or else in the first folder of PATH
/// that has it. Folders of PATH that are not absolute are skipped. Returns
/// nullopt if there is none.
std::optional<std::string>
findCompiler(const std::filesystem::path &folder = programFolder());

/// Receives each line of a stream, without its end.
using LineFn = std::function<void(std::string_view line)>;

/// What reads the output of a program. A stream without a function is this
/// program's.
struct ProgramStreams {
  LineFn output = {}, errors = {};
};

/// Runs `program` with `arguments` and waits for its end. Its standard input is
/// empty. Returns its exit status, or 128 and the number of the signal that
/// ended it. Throws Error if the program cannot run. What a function of
/// `streams` throws ends the program.
int runProgram(const std::string &program,
               const std::vector<std::string> &arguments,
               const ProgramStreams &streams = {});

} // namespace qwen::run

#endif // QWEN_RUN_COMPILERPROGRAM_H
