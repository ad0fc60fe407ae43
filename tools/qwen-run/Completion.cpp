//===- Completion.cpp - Scripts of shells, and the manual page ------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "Output.h"

using namespace qwen;
using namespace qwen::run;

void qwen::run::addCompletion(const Command &program) {
  addCompletionCommand(program, writeOut);
}

void qwen::run::addMan(const Command &program) {
  addManualCommand(program, writeOut);
}
