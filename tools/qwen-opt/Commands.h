//===- Commands.h - The commands of qwen-opt --------------------*- C++ -*-===//

#ifndef QWEN_OPT_COMMANDS_H
#define QWEN_OPT_COMMANDS_H

namespace CLI {
class App;
} // namespace CLI

namespace qwen {

// Each function adds a command with its options. The command throws Error.
#define QWEN_OPT_COMMAND(Name, Text) void add##Name(CLI::App &app);
#include "Commands.def"

} // namespace qwen

#endif // QWEN_OPT_COMMANDS_H
