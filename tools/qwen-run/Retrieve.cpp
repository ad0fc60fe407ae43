//===- Retrieve.cpp - Embeds texts and reranks documents ------------------===//

#include "Commands.h"
#include "Output.h"
#include "engine/Scheduler.h"
#include "text/Retrieval.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <semaphore>

using namespace qwen;
using namespace qwen::run;

namespace {

/// A text, or the tokens of a prompt, and what names it in errors.
struct Input {
  std::string where;
  std::string text;
  std::vector<int32_t> ids = {};
};

/// What a prompt gives.
struct Outcome {
  std::vector<float> row;
  std::string error;
};

using RowFn = std::function<void(size_t index, std::span<const float> row)>;

} // namespace

static void addLines(std::vector<Input> &inputs, const std::string &name,
                     const std::string &text) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r'))
      line.pop_back();
    inputs.push_back(
        {name + " line " + std::to_string(++number), std::move(line)});
    begin = end + 1;
  }
}

/// The lines of `files`, or of standard input if there are none.
static std::vector<Input> readLines(const std::vector<std::string> &files) {
  std::vector<Input> inputs;
  for (const std::string &file : files)
    addLines(inputs, file,
             readFile(file, Tokenizer::kMaxTextBytes, kLongestText));
  if (files.empty())
    addLines(inputs, "standard input",
             readInput(Tokenizer::kMaxTextBytes, kLongestText));
  return inputs;
}

static void checkPrompts(const std::vector<Input> &inputs,
                         const ModelInfo &model) {
  for (const Input &input : inputs) {
    if (input.ids.empty())
      throw Error(input.where + " is empty: at least one token is needed");
    if (std::ssize(input.ids) > model.context)
      throw Error(input.where + " has " + std::to_string(input.ids.size()) +
                  " tokens when " + model.describeContext());
  }
}

/// Runs the prompts and passes the rows of their last tokens to `receive`, in
/// order. The prompts share their common beginnings.
static void runPrompts(const RunFlags &command, const Artifact &artifact,
                       const std::vector<Input> &inputs, RowKind kind,
                       const RowFn &receive) {
  constexpr size_t kRunning = 16, kSubmitted = 64;
  checkPrompts(inputs, artifact.manifest().model);
  EngineOptions options = command.options(artifact);
  options.sequences =
      static_cast<int32_t>(std::clamp<size_t>(inputs.size(), 1, kRunning));
  ThreadPool pool(command.threadCount());
  Engine engine(artifact, pool, options);
  std::vector<Outcome> outcomes(kSubmitted);
  std::counting_semaphore<> ended(0);
  Scheduler scheduler(engine, {.queue = kSubmitted});
  for (size_t first = 0; first < inputs.size(); first += kSubmitted) {
    const size_t count = std::min(kSubmitted, inputs.size() - first);
    for (size_t i = 0; i < count; ++i) {
      Request request;
      request.prompt = inputs[first + i].ids;
      (kind == RowKind::Hidden ? request.onHidden : request.onLogits) =
          [&outcomes, i](std::span<const float> row) {
            outcomes[i].row.assign(row.begin(), row.end());
          };
      request.onEnd = [&outcomes, &ended, i](const Ending &ending) {
        outcomes[i].error = ending.error;
        ended.release();
      };
      scheduler.submit(std::move(request));
    }
    for (size_t i = 0; i < count; ++i)
      ended.acquire();
    for (size_t i = 0; i < count; ++i) {
      if (!outcomes[i].error.empty())
        throw Error(inputs[first + i].where + ": " + outcomes[i].error);
      receive(first + i, outcomes[i].row);
    }
  }
  finishCheck(engine, artifact);
}

/// The inputs of `embed` with their tokens.
static std::vector<Input> embedInputs(const EmbedCommand &command,
                                      const Artifact &artifact) {
  std::vector<Input> inputs;
  inputs.reserve(command.ids.size());
  for (const std::string &ids : command.ids)
    inputs.push_back({"--ids", {}, parseIds(ids, "--ids")});
  if (!inputs.empty())
    return inputs;
  const Tokenizer tokenizer = openTokenizer(artifact);
  inputs = readLines(command.files);
  for (Input &input : inputs)
    input.ids = embeddingPrompt(
        tokenizer, command.instruction ? "Instruct: " + *command.instruction +
                                             "\nQuery:" + input.text
                                       : input.text);
  return inputs;
}

void qwen::run::embed(const EmbedCommand &command) {
  const Artifact artifact(command.file);
  artifact.manifest().model.output.requireEmbedding(artifact.path());
  const int64_t size = artifact.manifest().model.hiddenSize;
  const int64_t dimensions = command.dimensions.value_or(size);
  if (dimensions > size)
    throw Error("--dim is " + std::to_string(dimensions) +
                " when the model has " + std::to_string(size) +
                " hidden values");
  const std::vector<Input> inputs = embedInputs(command, artifact);
  std::optional<OutputFile> file;
  if (!command.output.empty()) {
    file.emplace(command.output);
    const std::string header = npyHeader(inputs.size(), dimensions);
    file->write(header.data(), header.size());
  }
  runPrompts(command, artifact, inputs, RowKind::Hidden,
             [&](size_t index, std::span<const float> row) {
               const std::vector<float> embedding =
                   embeddingOf(row, static_cast<size_t>(dimensions));
               if (file)
                 file->write(embedding.data(),
                             embedding.size() * sizeof(float));
               else
                 writeOut(nlohmann::ordered_json(
                              {{"index", index}, {"embedding", embedding}})
                              .dump() +
                          "\n");
             });
  if (file)
    file->commit();
}

void qwen::run::rerank(const RerankCommand &command) {
  const Artifact artifact(command.file);
  const ModelOutput &output = artifact.manifest().model.output;
  output.requireScores(artifact.path());
  const Tokenizer tokenizer = openTokenizer(artifact);
  const Reranker reranker(tokenizer, output, artifact.path());
  std::vector<Input> inputs = readLines(command.files);
  for (Input &input : inputs)
    input.ids = reranker.prompt(command.instruction, command.query, input.text);
  runPrompts(command, artifact, inputs, RowKind::Logits,
             [&](size_t index, std::span<const float> row) {
               writeOut(nlohmann::ordered_json(
                            {{"index", index},
                             {"relevance_score", reranker.score(row)}})
                            .dump() +
                        "\n");
             });
}
