//===- Retrieve.cpp - Embeds texts and reranks documents ------------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "engine/Batcher.h"
#include "text/Retrieval.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::run;

namespace {
struct RerankCommand : RunFlags {
  std::string query;
  /// Files with a document in each line; empty for standard input.
  std::vector<std::string> files;
  std::string instruction = Reranker::kInstruction;
};

struct EmbedCommand : RunFlags {
  /// Files with a text in each line; empty for standard input.
  std::vector<std::string> files;
  /// Token ids of each prompt, in place of texts.
  std::vector<std::string> ids;
  /// What the texts are queries for; nothing if they are documents.
  std::optional<std::string> instruction;
  /// Number of first values of an embedding that are kept.
  std::optional<int64_t> dimensions;
  /// NumPy file; empty for JSON lines on standard output.
  std::string output;
};

/// A text, or the tokens of a prompt, and what names it in errors.
struct Input {
  std::string where;
  std::string text;
  std::vector<int32_t> ids = {};
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

/// Runs the prompts and passes the rows of their last tokens to `receive`, in
/// order. The prompts share their common beginnings.
static void runPrompts(const RunFlags &command, Model &model,
                       const std::vector<Input> &inputs, RowKind kind,
                       const RowFn &receive) {
  constexpr size_t kRunning = 16, kWaiting = 48;
  for (const Input &input : inputs)
    model.info().requirePrompt(input.ids, input.where);
  EngineOptions options = command.options(model);
  options.sequences =
      static_cast<int32_t>(std::clamp<size_t>(inputs.size(), 1, kRunning));
  const std::unique_ptr<Engine> engine = command.start(model, options);
  Batcher batcher(*engine, {.paced = false});
  std::vector<std::vector<float>> rows(inputs.size());
  std::string error;
  const auto add = [&](size_t i) {
    Request request;
    request.prompt.ids = inputs[i].ids;
    request.rows = {kind, [&rows, i](std::span<const float> row) {
                      rows[i].assign(row.begin(), row.end());
                    }};
    request.onEnd = [&error, &input = inputs[i]](const Ending &ending) {
      if (ending.reason == EndReason::Failed && error.empty())
        error = input.where + ": " + ending.error;
    };
    batcher.add(std::make_unique<Job>(std::move(request), i, model.info()));
  };
  size_t added = 0;
  for (size_t done = 0; done < inputs.size();) {
    while (added < inputs.size() && batcher.waitingCount() < kWaiting)
      add(added++);
    batcher.step();
    if (!error.empty())
      throw Error(error);
    for (; done < added && !rows[done].empty(); ++done)
      receive(done, std::exchange(rows[done], {}));
  }
  finishCheck(model, *engine);
}

/// The inputs of `embed` with their tokens.
static std::vector<Input> embedInputs(const EmbedCommand &command,
                                      const Model &model) {
  std::vector<Input> inputs;
  inputs.reserve(command.ids.size());
  for (const std::string &ids : command.ids)
    inputs.push_back({"--ids", {}, parseIds(ids, "--ids")});
  if (!inputs.empty())
    return inputs;
  const Tokenizer &tokenizer = model.tokenizer();
  inputs = readLines(command.files);
  for (Input &input : inputs)
    input.ids = embeddingPrompt(
        tokenizer, command.instruction ? "Instruct: " + *command.instruction +
                                             "\nQuery:" + input.text
                                       : input.text);
  return inputs;
}

static void embed(const EmbedCommand &command) {
  Model model(command.file.path());
  model.info().output.requireEmbedding(model.path());
  const int64_t size = model.info().hiddenSize;
  const int64_t dimensions = command.dimensions.value_or(size);
  if (dimensions > size)
    throw Error("--dim is " + std::to_string(dimensions) +
                " when the model has " + std::to_string(size) +
                " hidden values");
  const std::vector<Input> inputs = embedInputs(command, model);
  std::optional<OutputFile> file;
  if (!command.output.empty()) {
    file.emplace(command.output);
    const std::string header = npyHeader(inputs.size(), dimensions);
    file->write(header.data(), header.size());
  }
  runPrompts(command, model, inputs, RowKind::Hidden,
             [&](size_t index, std::span<const float> row) {
               const std::vector<float> embedding =
                   embeddingOf(row, static_cast<size_t>(dimensions));
               if (file)
                 file->write(embedding.data(),
                             embedding.size() * sizeof(float));
               else
                 writeObject({{"index", static_cast<int64_t>(index)},
                              {"embedding", embedding}});
             });
  if (file)
    file->commit();
}

static void rerank(const RerankCommand &command) {
  Model model(command.file.path());
  const ModelOutput &output = model.info().output;
  output.requireScores(model.path());
  const Reranker reranker(model.tokenizer(), output, model.path());
  std::vector<Input> inputs = readLines(command.files);
  for (Input &input : inputs)
    input.ids = reranker.prompt(command.instruction, command.query, input.text);
  runPrompts(command, model, inputs, RowKind::Logits,
             [&](size_t index, std::span<const float> row) {
               writeObject({{"index", static_cast<int64_t>(index)},
                            {"relevance_score", reranker.score(row)}});
             });
}

void qwen::run::addEmbed(const Command &program) {
  const auto command = std::make_shared<EmbedCommand>();
  const Command sub = program.addCommand(
      "embed", "Turn texts into vectors of length 1, one text per line");
  addFile(sub, command->file);
  const Option texts =
      sub.addTexts("TEXT", command->files,
                   "Files with a text in each line; default is standard input");
  const Option instruction = sub.addText(
      "--instruction", command->instruction,
      "What the texts are queries for: each becomes \"Instruct: "
      "INSTRUCTION\", a newline and \"Query:TEXT\"; default is none");
  sub.addTexts("--ids", command->ids,
               "Token ids (1,2,3) in place of texts; repeat the option for "
               "each prompt; default is none")
      .repeatable()
      .excludes(texts)
      .excludes(instruction);
  sub.addNumber(
      "--dim", command->dimensions,
      "Number of first values of a vector that are kept; default is all", 1,
      kMost);
  sub.addText("-o,--output", command->output,
              "File for the vectors, f32 [N, D], for NumPy (.npy); default "
              "is a JSON object per line on standard output")
      .type(kFileType);
  addRun(sub, *command);
  sub.onRun([command] { embed(*command); });
}

void qwen::run::addRerank(const Command &program) {
  const auto command = std::make_shared<RerankCommand>();
  const Command sub = program.addCommand(
      "rerank", "Score documents, one per line, by how well they answer a "
                "query: from 0 to 1");
  addFile(sub, command->file);
  sub.addTexts("DOCUMENTS", command->files,
               "Files with a document in each line; default is standard "
               "input");
  sub.addText("-q,--query", command->query, "The query").required();
  sub.addText("--instruction", command->instruction, "What to look for");
  addRun(sub, *command);
  sub.onRun([command] { rerank(*command); });
}
