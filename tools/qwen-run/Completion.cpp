//===- Completion.cpp - Scripts of shells, and the manual page ------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "Output.h"

using namespace qwen;
using namespace qwen::run;

void qwen::run::addCompletion(CLI::App &app) {
  addCompletionCommand(app, writeOut);
}

void qwen::run::addMan(CLI::App &app) { addManualCommand(app, writeOut); }
