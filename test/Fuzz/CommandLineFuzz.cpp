//===- CommandLineFuzz.cpp - Arguments of qwen-run ----------------------===//

//
// The input has one argument in each line. The commands are qwen-run's own;
// they only read their options.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "CommandLine.h"
#include "Commands.h"
#include "Output.h"

#include <algorithm>

using namespace qwen;

namespace {
/// Thrown before a command would run.
struct Parsed {};
} // namespace

/// Whether the commands take these arguments.
static bool takes(int argc, char **argv) {
  const Program program("qwen-run", "");
  program.requireCommand();
  run::addCommands(program);
  program.onParsed([] { throw Parsed(); });
  try {
    program.parse(argc, argv);
  } catch (const Parsed &) {
    return true;
  } catch (const Error &) {
  }
  return false;
}

static void checkIds(const std::string &text) {
  try {
    for (int32_t id : run::parseIds(text, "--ids"))
      fuzz::require(id >= 0, "a negative id is taken");
  } catch (const Error &) {
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(fuzz::asText(data, size));
  // The system ends arguments at a NUL.
  std::ranges::replace(text, '\0', ' ');
  std::vector<char *> arguments = {const_cast<char *>("qwen-run")};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    text[end] = 0;
    arguments.push_back(text.data() + begin);
    begin = end + 1;
  }
  arguments.push_back(nullptr);
  if (takes(static_cast<int>(arguments.size() - 1), arguments.data()))
    for (size_t i = 2; arguments[i]; ++i)
      checkIds(arguments[i]);
  return 0;
}
