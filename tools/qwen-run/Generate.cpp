//===- Generate.cpp - Continues a text ------------------------------------===//

#include "Commands.h"
#include "Options.h"
#include "Output.h"
#include "engine/Session.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

namespace {
struct GenerateCommand : RunFlags {
  std::optional<std::string> prompt;
  std::optional<std::string> ids;
  std::optional<int64_t> count;
  SamplingFlags sampling;
  bool ignoreEos = false;
  int64_t piece = 0;
};
} // namespace

static std::vector<int32_t> promptIds(const GenerateCommand &command,
                                      const Model &model) {
  std::vector<int32_t> ids;
  if (command.ids) {
    ids = parseIds(*command.ids, "--ids");
  } else {
    const Tokenizer &tokenizer = model.tokenizer();
    ids = tokenizer.encode(
        command.prompt ? *command.prompt
                       : readInput(tokenizer.mostBytes(model.info().context),
                                   model.info().describeContext()));
  }
  const std::optional<int32_t> bos = model.manifest().generation.bosTokenId;
  if (ids.empty() && bos)
    ids.push_back(*bos);
  return ids;
}

static void generate(const GenerateCommand &command) {
  Model model(command.file.path());
  model.info().output.requireLogits(model.path());
  const std::vector<int32_t> prompt = promptIds(command, model);

  const GenerationConfig &generation = model.manifest().generation;
  EngineOptions options = command.options(model);
  options.callTokens = command.piece;
  Engine &engine = command.start(model, options);
  const std::vector<int32_t> &ends = generation.eosTokenIds;
  Session session(engine, command.sampling.apply(generation), ends);
  session.setTokens(prompt);

  const auto start = std::chrono::steady_clock::now();
  auto decodeStart = start;
  Utf8Stream characters;
  int64_t count = 0;
  for (; !command.count || count < *command.count; ++count) {
    const std::optional<int32_t> id = session.next();
    if (count == 0)
      decodeStart = std::chrono::steady_clock::now();
    if (!id ||
        (!command.ignoreEos && std::ranges::find(ends, *id) != ends.end()))
      break;
    if (command.ids)
      writeOut((count ? "," : "") + std::to_string(*id));
    else if (!model.tokenizer().isSpecial(*id))
      writeOut(characters.push(model.tokenizer().tokenBytes(*id)));
  }
  writeOut(characters.finish() + "\n");
  const double decodeSeconds = secondsSince(decodeStart);
  finishCheck(model);
  if (!isTerminal(STDERR_FILENO) || count < 2)
    return;
  char stats[160];
  snprintf(stats, sizeof(stats),
           "[%zu tokens read at %.1f/s, %lld written at %.1f/s]\n",
           prompt.size(),
           static_cast<double>(prompt.size()) /
               std::chrono::duration<double>(decodeStart - start).count(),
           static_cast<long long>(count),
           static_cast<double>(count - 1) / decodeSeconds);
  writeError(stats);
}

void qwen::run::addGenerate(CLI::App &app) {
  const auto command = std::make_shared<GenerateCommand>();
  CLI::App *sub = app.add_subcommand("generate", "Continue a text");
  addFile(sub, command->file);
  CLI::Option *prompt = sub->add_option("-p,--prompt", command->prompt,
                                        "Text to continue; default is standard "
                                        "input");
  sub->add_option("--ids", command->ids,
                  "Prompt as token ids (1,2,3); the answer is printed as ids")
      ->excludes(prompt);
  addNumber(sub, "-n,--count", command->count,
            "Maximum tokens to generate; default is the rest of the context", 0,
            kMost);
  addSampling(sub, command->sampling);
  sub->add_flag("--ignore-eos", command->ignoreEos,
                "Continue past the tokens that end an answer");
  addRun(sub, *command);
  addPiece(sub, command->piece);
  sub->callback([command] { generate(*command); });
}
