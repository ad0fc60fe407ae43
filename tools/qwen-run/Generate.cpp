//===- Generate.cpp - Continues a text ------------------------------------===//

#include "Commands.h"
#include "Output.h"
#include "engine/Session.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

SamplerOptions SamplingFlags::apply(const GenerationConfig &generation) const {
  SamplerOptions options = samplerOptions(generation);
#define QWEN_SAMPLING(Type, Field, Name, ...)                                  \
  options.Field = Field.value_or(options.Field);
#include "engine/SamplerOptions.def"
  options.logitBias = logitBias;
  options.seed = seed.value_or(options.seed);
  return options;
}

Tokenizer qwen::run::openTokenizer(const Artifact &artifact) {
  if (artifact.tokenizer().empty())
    throw Error(artifact.path() +
                " has no tokenizer, because its checkpoint had none: texts "
                "need one, generate and logits take --ids");
  return Tokenizer::fromBlob(artifact.tokenizer());
}

static std::vector<int32_t>
promptIds(const GenerateCommand &command, const Artifact &artifact,
          const std::optional<Tokenizer> &tokenizer) {
  const ModelInfo &model = artifact.manifest().model;
  std::vector<int32_t> ids;
  if (command.ids)
    ids = parseIds(*command.ids, "--ids");
  else if (tokenizer)
    ids = tokenizer->encode(command.prompt
                                ? *command.prompt
                                : readInput(tokenizer->mostBytes(model.context),
                                            model.describeContext()));
  const std::optional<int32_t> bos = artifact.manifest().generation.bosTokenId;
  if (ids.empty() && bos)
    ids.push_back(*bos);
  return ids;
}

void qwen::run::generate(const GenerateCommand &command) {
  const Artifact artifact(command.file);
  artifact.manifest().model.output.requireLogits(artifact.path());
  std::optional<Tokenizer> tokenizer;
  if (!command.ids)
    tokenizer = openTokenizer(artifact);
  const std::vector<int32_t> prompt = promptIds(command, artifact, tokenizer);

  const GenerationConfig &generation = artifact.manifest().generation;
  EngineOptions options = command.options(artifact);
  options.callTokens = command.piece;
  ThreadPool pool(command.threadCount());
  Engine engine(artifact, pool, options);
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
    if (!tokenizer)
      writeOut((count ? "," : "") + std::to_string(*id));
    else if (!tokenizer->isSpecial(*id))
      writeOut(characters.push(tokenizer->tokenBytes(*id)));
  }
  writeOut(characters.finish() + "\n");
  const double decodeSeconds = secondsSince(decodeStart);
  finishCheck(engine, artifact);
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
