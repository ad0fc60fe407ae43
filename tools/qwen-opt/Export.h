//===- Export.h - The export command ----------------------------*- C++ -*-===//

#ifndef QWEN_OPT_EXPORT_H
#define QWEN_OPT_EXPORT_H

namespace qwen {

/// Runs `qwen-opt export FILE -o FILE.gguf`. `argv[1]` is "export". Returns the
/// exit code.
int exportMain(int argc, char **argv);

} // namespace qwen

#endif // QWEN_OPT_EXPORT_H
