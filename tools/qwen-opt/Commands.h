//===- Commands.h - The commands of qwen-opt --------------------*- C++ -*-===//

#ifndef QWEN_OPT_COMMANDS_H
#define QWEN_OPT_COMMANDS_H

namespace qwen {

class Command;

// Each function adds a command with its options. The command throws Error.
#define QWEN_OPT_COMMAND(Name, Text) void add##Name(const Command &program);
#include "Commands.def"

} // namespace qwen

#endif // QWEN_OPT_COMMANDS_H
