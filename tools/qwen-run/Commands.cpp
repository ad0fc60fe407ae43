//===- Commands.cpp - The commands of qwen-run ----------------------------===//

#include "Commands.h"

using namespace qwen;

void qwen::run::addCommands(const Command &program) {
#define QWEN_COMMAND(Name) add##Name(program);
#include "Commands.def"
}
