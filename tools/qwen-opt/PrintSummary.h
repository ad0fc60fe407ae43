//===- PrintSummary.h - The closing lines of a compile ----------*- C++ -*-===//

#ifndef QWEN_OPT_PRINTSUMMARY_H
#define QWEN_OPT_PRINTSUMMARY_H

#include "qwen/Compiler/Compiler.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// "1.5 KiB" or "2.0 MiB".
std::string withUnit(uint64_t bytes);

/// What a calibration of the model would bring, and how long it takes on this
/// machine; nothing if no matrix was rounded without one. `weights` is the
/// value of --weights, if it alone gave the formats, or empty. Measures the
/// machine in some milliseconds.
std::optional<std::string> calibrationAdvice(const CompileSummary &summary,
                                             std::string_view weights);

/// Prints the facts of the new file `name` to standard error, with the lines
/// `lines` of its calibration and verification. `weights` as for
/// calibrationAdvice.
void printSummary(const std::string &name, const CompileSummary &summary,
                  std::string_view weights,
                  const std::vector<std::string> &lines, double seconds);

} // namespace qwen

#endif // QWEN_OPT_PRINTSUMMARY_H
