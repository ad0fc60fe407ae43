//===- qwen-run.cpp - Runs compiled models --------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "ExitCodes.h"
#include "Output.h"
#include "artifact/File.h"
#include "cache/CompiledModel.h"
#include "cache/ModelSource.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include <algorithm>
#include <new>
#include <vector>

using namespace qwen;
using namespace qwen::run;

/// The arguments, with the command "chat" before a MODEL without a command.
/// Throws UsageError if the first one is neither a command nor a model.
static std::vector<const char *> withCommand(const Program &program, int argc,
                                             char **argv) {
  std::vector<const char *> arguments(argv, argv + argc);
  const auto isFirst = [&](const Command &command) {
    return command.name() == argv[1];
  };
  if (argc < 2 || argv[1][0] == '-' ||
      std::ranges::any_of(program.commands(), isFirst))
    return arguments;
  if (!isModel(argv[1]))
    throw UsageError(program,
                     quote(argv[1]) +
                         " is neither a command nor a model: the commands "
                         "are " +
                         commandList(program) +
                         "; a model is a "
                         "compiled file, a checkpoint folder, a GGUF file "
                         "or a name in Hugging Face's cache");
  arguments.insert(arguments.begin() + 1, "chat");
  return arguments;
}

/// Runs the command of the arguments.
static void runCommand(int argc, char **argv) {
  const Program program("qwen-run", "Runs models that qwen-opt compiled.");
  program.requireCommand();
  program.addVersion(std::string("qwen-run ") + projectVersion());
  addCommands(program);
  const std::vector<const char *> arguments = withCommand(program, argc, argv);
  program.parse(static_cast<int>(arguments.size()), arguments.data());
}

// The code outside of `try` throws only if there is no memory for an error.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char **argv) {
  prepareProcess("qwen-run");
  const auto fail = [](const std::exception &error,
                       const std::string &message) {
    writeError("qwen-run: " + message + "\n");
    return exitCodeOf(error);
  };
  try {
    runCommand(argc, argv);
    return 0;
  } catch (const std::bad_alloc &error) {
    return fail(error, "out of memory" + addressSpaceLimit());
  } catch (const std::exception &error) {
    doubtCachedModels(error.what());
    return fail(error, error.what());
  }
}
