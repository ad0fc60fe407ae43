//===- qwen-run.cpp - Runs compiled models --------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "Output.h"
#include "artifact/File.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/Version.h"

#include <new>

using namespace qwen;
using namespace qwen::run;

// The code outside of `try` throws only if there is no memory for the options.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char **argv) {
  prepareProcess("qwen-run");
  CLI::App app("Runs models that qwen-opt compiled.", "qwen-run");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("qwen-run ") + projectVersion());
  addCommands(app);
  const auto fail = [](const std::string &message) {
    writeError("qwen-run: " + message + "\n");
    return 1;
  };
  try {
    parseCommandLine(app, argc, argv);
  } catch (const CLI::Success &request) {
    return app.exit(request);
  } catch (const UsageError &error) {
    fail(error.what());
    return 2;
  } catch (const std::bad_alloc &) {
    return fail("out of memory" + addressSpaceLimit());
  } catch (const std::exception &error) {
    return fail(error.what());
  }
  return 0;
}
