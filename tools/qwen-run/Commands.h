//===- Commands.h - The commands of qwen-run --------------------*- C++ -*-===//

#ifndef QWEN_RUN_COMMANDS_H
#define QWEN_RUN_COMMANDS_H

namespace qwen {
class Command;
} // namespace qwen

namespace qwen::run {

// Each function adds a command with its options. The command throws Error.
#define QWEN_COMMAND(Name) void add##Name(const Command &program);
#include "Commands.def"

/// Adds all commands, in the order of Commands.def.
void addCommands(const Command &program);

} // namespace qwen::run

#endif // QWEN_RUN_COMMANDS_H
