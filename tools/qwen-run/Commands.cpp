//===- Commands.cpp - The commands of qwen-run ----------------------------===//

#include "Commands.h"

using namespace qwen;

void qwen::run::addCommands(CLI::App &app) {
#define QWEN_COMMAND(Name) add##Name(app);
#include "Commands.def"
}
