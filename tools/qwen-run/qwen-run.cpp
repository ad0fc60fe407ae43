//===- qwen-run.cpp - Runs compiled models --------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "ExitCodes.h"
#include "Output.h"
#include "artifact/File.h"
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
static std::vector<const char *> withCommand(const CLI::App &app, int argc,
                                             char **argv) {
  std::vector<const char *> arguments(argv, argv + argc);
  const auto isFirst = [&](const CLI::App *command) {
    return command->get_name() == argv[1];
  };
  if (argc < 2 || argv[1][0] == '-' ||
      std::ranges::any_of(app.get_subcommands({}), isFirst))
    return arguments;
  if (!isModel(argv[1]))
    throw UsageError(app, quote(argv[1]) +
                              " is neither a command nor a model: the commands "
                              "are " +
                              commandList(app) +
                              "; a model is a "
                              "compiled file, a checkpoint folder, a GGUF file "
                              "or a name in Hugging Face's cache");
  arguments.insert(arguments.begin() + 1, "chat");
  return arguments;
}

/// Runs the command of the arguments, and returns the exit status.
static int runCommand(int argc, char **argv) {
  CLI::App app("Runs models that qwen-opt compiled.", "qwen-run");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("qwen-run ") + projectVersion());
  addCommands(app);
  try {
    const std::vector<const char *> arguments = withCommand(app, argc, argv);
    parseCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::Success &request) {
    return app.exit(request);
  }
  return 0;
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
    return runCommand(argc, argv);
  } catch (const std::bad_alloc &error) {
    return fail(error, "out of memory" + addressSpaceLimit());
  } catch (const std::exception &error) {
    return fail(error, error.what());
  }
}
