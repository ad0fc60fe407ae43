//===- Report.h - The report command ----------------------------*- C++ -*-===//

#ifndef QWEN_OPT_REPORT_H
#define QWEN_OPT_REPORT_H

namespace qwen {

/// Runs `qwen-opt report FILE ...`: prints the bytes and multiplications of
/// each op of a compiled model, and the cycles of its kernels in LLVM's model
/// of a CPU. `argv[1]` is "report". Returns the exit code.
int reportMain(int argc, char **argv);

} // namespace qwen

#endif // QWEN_OPT_REPORT_H
