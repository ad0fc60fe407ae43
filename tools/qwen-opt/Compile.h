//===- Compile.h - The compile driver ---------------------------*- C++ -*-===//

#ifndef QWEN_OPT_COMPILE_H
#define QWEN_OPT_COMPILE_H

namespace qwen {

/// Compiles as the arguments say. Returns the exit status: 0, 1 for an error
/// (one line on stderr), 2 for wrong usage.
int compileMain(int argc, char **argv);

/// Prints namedTargets() on standard output, with their features and their
/// kernels for products in each weight format, for one token and for more.
void listTargets(bool json);

} // namespace qwen

#endif // QWEN_OPT_COMPILE_H
