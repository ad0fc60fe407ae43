//===- Compile.h - The compile driver ---------------------------*- C++ -*-===//

#ifndef QWEN_OPT_COMPILE_H
#define QWEN_OPT_COMPILE_H

namespace qwen {

/// Runs the command line of the compiler. Returns the exit status: 0, 1 for an
/// error (one line on standard error), 2 for an invalid command line.
int compileMain(int argc, char **argv);

/// Prints namedTargets() on standard output, with their features and, for each
/// weight format, their GEMV and GEMM kernels.
void listTargets(bool json);

} // namespace qwen

#endif // QWEN_OPT_COMPILE_H
