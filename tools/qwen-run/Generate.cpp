//===- Generate.cpp - Continues a text ------------------------------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "engine/Session.h"
#include "model/SamplerTexts.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

namespace {
struct GenerateCommand : RunFlags {
  GenerateCommand() { engine.speculate = Speculate::Auto; }

  std::optional<std::string> prompt;
  std::optional<std::string> ids;
  std::optional<int64_t> count;
  SamplingFlags sampling;
  BeamFlags beams;
  bool json = false;
  bool ignoreEos = false;
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

/// Ids as text, without the end of an answer and other special tokens.
static std::string textOf(const Model &model, std::span<const int32_t> ids) {
  std::string bytes;
  for (int32_t id : ids)
    if (!model.tokenizer().isSpecial(id))
      bytes += model.tokenizer().tokenBytes(id);
  return toValidUtf8(bytes);
}

static std::string listOf(std::span<const int32_t> ids) {
  std::string list;
  for (int32_t id : ids)
    list += (list.empty() ? "" : ",") + std::to_string(id);
  return list;
}

static JsonText objectOf(const GenerateCommand &command, const Model &model,
                         std::span<const int32_t> ends,
                         const BeamTokens &answer) {
  const bool isEnded =
      !answer.ids.empty() && std::ranges::count(ends, answer.ids.back()) > 0;
  JsonText object =
      jsonObject({{"score", answer.score},
                  {"ids", answer.ids},
                  {"logprobs", answer.logprobs},
                  {"finish_reason", isEnded ? "stop" : "length"}});
  if (command.ids)
    return object;
  return joinObjects(object, jsonObject({{"text", textOf(model, answer.ids)}}));
}

static SamplerOptions samplingOf(const GenerateCommand &command,
                                 const Model &model) {
  SamplerOptions options = command.sampling.apply(model.manifest().generation);
  if (hasTexts(options))
    resolveTexts(model.tokenizer(), options);
  return options;
}

/// Prints the answers of a beam search.
static void search(const GenerateCommand &command, Model &model, Engine &engine,
                   const std::vector<int32_t> &prompt) {
  const GenerationConfig &generation = model.manifest().generation;
  std::vector<BeamTokens> answers;
  std::optional<Error> failure;
  Request request;
  request.prompt.ids = prompt;
  request.sampling = samplingOf(command, model);
  request.maxTokens = command.count.value_or(request.maxTokens);
  if (!command.ignoreEos)
    request.stopTokens = generation.eosTokenIds;
  request.beams = command.beams.options;
  request.answers = command.beams.answers;
  request.onAnswers = [&](std::span<const BeamTokens> found) {
    answers.assign(found.begin(), found.end());
  };
  request.onEnd = [&](const Ending &ending) {
    if (ending.reason == EndReason::Failed)
      failure.emplace(ending.error, ending.kind);
  };
  const std::vector<int32_t> ends = request.stopTokens;
  Batcher batcher(engine, {.paced = false});
  batcher.add(std::make_unique<Job>(std::move(request), 1, model.info()));
  while (!batcher.isIdle())
    batcher.step();
  if (failure)
    throw Error(*failure);
  std::vector<JsonText> list;
  for (const BeamTokens &answer : answers)
    if (command.json)
      list.push_back(objectOf(command, model, ends, answer));
    else
      writeAnswer(
          (command.ids ? listOf(answer.ids) : textOf(model, answer.ids)) +
          "\n");
  if (command.json)
    writeObject({{"answers", jsonArray(list)}});
  finishCheck(model, engine);
}

static void generate(const GenerateCommand &command) {
  command.beams.options.check(command.beams.answers);
  Model model(command.file.path());
  model.info().output.requireLogits(model.path());
  const std::vector<int32_t> prompt = promptIds(command, model);

  const GenerationConfig &generation = model.manifest().generation;
  EngineOptions options = command.options(model);
  options.sequences = static_cast<int32_t>(command.beams.options.beams);
  const std::unique_ptr<Engine> started = command.start(model, options);
  Engine &engine = *started;
  if (command.beams.options.isSearch())
    return search(command, model, engine, prompt);
  const std::vector<int32_t> &ends = generation.eosTokenIds;
  Session session(engine, samplingOf(command, model), ends);
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
      writeAnswer(characters.push(model.tokenizer().tokenBytes(*id)));
  }
  writeAnswer(characters.finish() + "\n");
  const double decodeSeconds = secondsSince(decodeStart);
  finishCheck(model, engine);
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

void qwen::run::addGenerate(const Command &program) {
  const auto command = std::make_shared<GenerateCommand>();
  const Command sub = program.addCommand("generate", "Continue a text");
  addFile(sub, command->file);
  sub.group("Prompt and answer");
  const Option prompt = sub.addText("-p,--prompt", command->prompt,
                                    "Text to continue; default is standard "
                                    "input");
  sub.addText("--ids", command->ids,
              "Prompt as token ids (1,2,3) in place of --prompt; the answer is "
              "printed "
              "as ids; default is none")
      .excludes(prompt);
  sub.addNumber(
      "-n,--count", command->count,
      "Maximum tokens to generate; default is the rest of the context", 0,
      kMost);
  sub.addFlag("--ignore-eos", command->ignoreEos,
              "Continue past the tokens that end an answer");
  addSampling(sub, command->sampling);
  addBeams(sub, command->beams);
  sub.addFlag("--json", command->json,
              "Print the answers of a beam search with scores, as JSON")
      .needs(sub.option("--num-beams"));
  addRun(sub, *command, {EnginePart::Calls, EnginePart::Answers});
  sub.onRun([command] { generate(*command); });
}
