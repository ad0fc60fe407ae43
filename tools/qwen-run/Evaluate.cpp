//===- Evaluate.cpp - Accuracy on tasks -----------------------------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "ProgressBar.h"
#include "tasks/Evaluation.h"
#include "tasks/Samples.h"
#include "tasks/Scorer.h"

#include "qwen/Support/Error.h"

#include <map>

using namespace qwen;
using namespace qwen::run;
using namespace qwen::tasks;

namespace {
struct EvaluateCommand : RunFlags {
  std::vector<std::string> tasks;
  std::string data;
  EvaluationOptions evaluation;
  /// Maximum tokens that the model reads in a request; nothing: its context.
  std::optional<int64_t> mostTokens;
  /// File for the scores of each document; empty for none.
  std::string samples;
  /// Only write the requests.
  bool dryRun = false;
  bool json = false;
};

/// The documents that run or wait, with their requests.
using Pending = std::map<size_t, RequestStream::Item>;
} // namespace

/// What makes the scores of two runs comparable.
static JsonText describeRun(const EvaluateCommand &command, const Model &model,
                            int64_t mostTokens) {
  return jsonObject(
      {{"model", model.manifest().model.name},
       {"weights", model.manifest().weightFormats()},
       {"weights_hash", model.artifact().header().weightChecksumsChecksum},
       {"num_fewshot", command.evaluation.examples},
       {"max_length", mostTokens}});
}

/// Scores all documents that have no scores yet.
static void score(const EvaluateCommand &command, Model &model,
                  RequestStream &stream, Evaluation &evaluation,
                  std::optional<SamplesFile> &samples) {
  EngineOptions options = command.options(model);
  options.sequences = kDocumentsAtOnce;
  options.snapshotBytes = EngineOptions().snapshotBytes;
  const std::unique_ptr<Engine> own = command.start(model, options);
  Engine &engine = *own;
  ProgressBar progress("documents");
  Pending pending;
  size_t started = 0, done = 0;
  for (const EvaluatedTask &task : evaluation.tasks())
    for (const std::vector<Likelihood> &scores : task.scores)
      done += !scores.empty();
  progress.update(done, evaluation.documents());
  scoreDocuments(
      engine,
      [&]() -> std::optional<std::vector<ScoreRequest>> {
        std::optional<RequestStream::Item> item = stream.next();
        if (!item)
          return std::nullopt;
        std::vector<ScoreRequest> requests = item->requests;
        pending.emplace(started++, std::move(*item));
        return requests;
      },
      [&](size_t document, std::vector<Likelihood> scores) {
        const auto item = pending.find(document);
        const DocumentId id = item->second.id;
        evaluation.setScores(id, scores);
        if (samples)
          samples->add(evaluation, id, item->second.requests, scores);
        pending.erase(item);
        progress.update(++done, evaluation.documents());
      });
  finishCheck(model, engine);
}

static void evaluate(const EvaluateCommand &command) {
  Model model(command.file.path());
  const ModelInfo &info = model.info();
  info.output.requireLogits(model.path());
  const int64_t mostTokens = command.mostTokens.value_or(info.context);
  if (mostTokens > info.context)
    throw Error("--max-length is " + std::to_string(mostTokens) + " when " +
                info.describeContext());
  const TaskTable table;
  Evaluation evaluation(table.choose(command.tasks), DataFolder(command.data),
                        command.evaluation);
  for (const std::string &note : evaluation.notes())
    writeError("qwen-run: " + note + "\n");
  const RequestMaker maker(model.tokenizer(), mostTokens);
  std::optional<SamplesFile> samples;
  if (!command.samples.empty())
    samples.emplace(command.samples,
                    describeRun(command, model, mostTokens).text, evaluation);
  RequestStream stream(evaluation, maker);
  if (command.dryRun) {
    while (const std::optional<RequestStream::Item> item = stream.next())
      samples->add(evaluation, item->id, item->requests, {});
    return;
  }
  score(command, model, stream, evaluation, samples);
  if (!command.json)
    return writeOut(evaluation.resultsTable());
  writeJson(joinObjects({evaluation.resultsJson()},
                        jsonObject({{"model_name", info.name},
                                    {"max_length", mostTokens},
                                    {"notes", jsonArray(evaluation.notes())}})),
            2);
}

void qwen::run::addEvaluate(const Command &program) {
  const auto command = std::make_shared<EvaluateCommand>();
  const Command sub = program.addCommand(
      "eval", "Measure accuracy on tasks, as lm-evaluation-harness does");
  const std::vector<std::string> known = TaskTable().names();
  std::string names;
  for (const std::string &name : known)
    names += (names.empty() ? "" : ", ") + name;
  addFile(sub, command->file);
  sub.group("Tasks and results");
  sub.addTexts("--tasks", command->tasks,
               "Tasks: " + names + "; subjects as mmlu_anatomy")
      .required()
      .list(',')
      .suggest(known)
      .type("NAME,...");
  sub.addText("--data", command->data, "Folder with the data of the tasks")
      .type(kFolderType)
      .required();
  sub.addNumber("--num-fewshot", command->evaluation.examples,
                "Number of examples in a context", 0, 100);
  sub.addNumber("--limit", command->evaluation.limit,
                "Number of first documents of each task; default is all", 1,
                kMost);
  sub.addNumber(
      "--max-length", command->mostTokens,
      "Maximum tokens that the model reads in a request; default is the "
      "model's context",
      1, kMost);
  const Option samples =
      sub.addText("--samples", command->samples,
                  "File for the requests and scores of "
                  "each document (JSON lines). If it "
                  "exists, the run goes on from it; default is none")
          .type(kFileType);
  sub.addFlag("--dry-run", command->dryRun,
              "Write the requests to the samples, and run nothing")
      .needs(samples);
  sub.addFlag("--json", command->json,
              "Print JSON in the layout of lm-evaluation-harness");
  addRun(sub, *command);
  sub.onRun([command] { evaluate(*command); });
}
