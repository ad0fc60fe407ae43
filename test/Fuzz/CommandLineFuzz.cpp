//===- CommandLineFuzz.cpp - Arguments of qwen-run ----------------------===//

//
// The input has one argument in each line. qwen-run's own main parses them. Its
// commands are replaced by the ones below, which only read their options.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "Commands.h"
#include "Output.h"
#include "engine/ThreadPool.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::run;

/// The main of qwen-run.cpp, which is compiled with another name for it.
int qwenRunMain(int argc, char **argv);

static void checkThreads(int32_t threads) {
  fuzz::require(threads >= 0 && threads <= ThreadPool::kMaxThreads,
                "a number of threads out of range is taken");
}

static void checkIds(const std::string &text) {
  for (int32_t id : parseIds(text, "--ids"))
    fuzz::require(id >= 0, "a negative id is taken");
}

void qwen::run::generate(const GenerateCommand &command) {
  checkThreads(command.threads);
  fuzz::require(!command.count || *command.count >= 0,
                "a negative count is taken");
  fuzz::require(command.piece >= 0, "a negative piece is taken");
  if (command.ids)
    checkIds(*command.ids);
}

void qwen::run::serve(const ServeCommand &command) {
  checkThreads(command.threads);
  fuzz::require(command.server.sequences > 0 && command.server.queue > 0 &&
                    command.server.keepAlive > 0,
                "a number that is not positive is taken");
}

void qwen::run::chat(const ChatCommand &command) {
  checkThreads(command.threads);
  fuzz::require(!command.count || *command.count >= 0,
                "a negative count is taken");
}

void qwen::run::bench(const BenchCommand &command) {
  checkThreads(command.threads);
  fuzz::require(command.prompt > 0 && command.count > 0 &&
                    command.repetitions > 0,
                "a number that is not positive is taken");
}

void qwen::run::bandwidth(const BenchCommand &command) { bench(command); }
void qwen::run::benchClients(const BenchCommand &command) { bench(command); }

void qwen::run::info(const InfoCommand &) {}

void qwen::run::verify(const VerifyCommand &) {}

void qwen::run::tokenize(const TokenizeCommand &command) {
  if (command.decode && command.text)
    checkIds(*command.text);
}

void qwen::run::logits(const LogitsCommand &command) {
  checkThreads(command.threads);
  for (const std::string &ids : command.ids)
    checkIds(ids);
}

void qwen::run::embed(const EmbedCommand &command) {
  checkThreads(command.threads);
  for (const std::string &ids : command.ids)
    checkIds(ids);
  fuzz::require(command.dimensions.value_or(1) > 0,
                "a number of dimensions that is not positive is taken");
}

void qwen::run::rerank(const RerankCommand &command) {
  checkThreads(command.threads);
}

void qwen::run::perplexity(const PerplexityCommand &command) {
  checkThreads(command.threads);
  fuzz::require(!command.window || *command.window > 1,
                "a window that scores no token is taken");
}

void qwen::run::compare(const CompareCommand &command) {
  checkThreads(command.threads);
  fuzz::require(command.window > 1, "a window that scores no token is taken");
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
  const int result =
      qwenRunMain(static_cast<int>(arguments.size() - 1), arguments.data());
  fuzz::require(result >= 0 && result <= 2, "an exit code of no meaning");
  return 0;
}
