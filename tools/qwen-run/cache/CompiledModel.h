//===- CompiledModel.h - From a MODEL to a compiled file --------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_COMPILEDMODEL_H
#define QWEN_RUN_CACHE_COMPILEDMODEL_H

#include "CompileOptions.h"
#include "cache/RunCompiler.h"

#include <string>
#include <vector>

namespace qwen::run {

/// Where a compiled file may lie.
enum class FilePlace {
  /// In the cache, or in a file of this process if there is none.
  Anywhere,
  Cache
};

/// The path of the compiled file of `given`, which is one, or names a model
/// that is compiled already or is compiled now
/// (docs/decisions/0022-one-command.md). Says on standard error what it does;
/// `progress`, if there is one, gets how far a compile is, and its owner judges
/// whether there is enough memory. Throws Error, before it compiles if the
/// cache is needed and cannot be used. One thread at a time may call it.
std::string compiledModel(const std::string &given,
                          const std::vector<CompileArgument> &arguments,
                          FilePlace place = FilePlace::Anywhere,
                          const CompileProgressFn &progress = {});

/// Makes the next run compare each cached file of this one that `error` names
/// with its checksums, and compile it again if it is damaged. Throws nothing.
void doubtCachedModels(const std::string &error);

/// What compiledModel would do, in lines. It changes nothing. Throws Error.
std::string describeCompile(const std::string &given,
                            const std::vector<CompileArgument> &arguments);

/// The digits at the end of the name of a cached file, which tell compilers
/// apart: the digits of the compiler that would run now, or nothing without
/// one.
std::string compilerDigits();

/// "1.5 GiB".
std::string bytesWithUnit(uint64_t bytes);

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_COMPILEDMODEL_H
