//===- Info.h - The info command --------------------------------*- C++ -*-===//

#ifndef QWEN_OPT_INFO_H
#define QWEN_OPT_INFO_H

namespace qwen {

/// Runs `qwen-opt info CHECKPOINT ...`: describes a checkpoint before it is
/// compiled. `argv[1]` is "info". Returns the exit code.
int infoMain(int argc, char **argv);

} // namespace qwen

#endif // QWEN_OPT_INFO_H
