//===- Report.h - The report command ----------------------------*- C++ -*-===//

#ifndef QWEN_OPT_REPORT_H
#define QWEN_OPT_REPORT_H

namespace qwen {

/// Runs `qwen-opt report FILE ...`: what each op of a compiled model moves and
/// computes, and the cycles that its kernels' code takes on a CPU by LLVM's
/// model. `argv[1]` is "report". Returns the exit code.
int reportMain(int argc, char **argv);

} // namespace qwen

#endif // QWEN_OPT_REPORT_H
