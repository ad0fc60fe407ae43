//===- PrintSummary.h - The closing lines of a compile ----------*- C++ -*-===//

#ifndef QWEN_OPT_PRINTSUMMARY_H
#define QWEN_OPT_PRINTSUMMARY_H

#include "qwen/Compiler/Compiler.h"

#include <string>
#include <vector>

namespace qwen {

/// "1.5 KiB" or "2.0 MiB".
std::string withUnit(uint64_t bytes);

/// Prints the facts of the new file `name` to standard error, with the lines
/// `verified` of its verification.
void printSummary(const std::string &name, const CompileSummary &summary,
                  const std::vector<std::string> &verified, double seconds);

} // namespace qwen

#endif // QWEN_OPT_PRINTSUMMARY_H
