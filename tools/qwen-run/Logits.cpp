//===- Logits.cpp - Logits of each token, for NumPy -----------------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "Options.h"
#include "Output.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::run;

namespace {
struct LogitsCommand : RunFlags {
  LogitsCommand() { anyThreads = true; }

  /// Ids of each sequence; all sequences run together.
  std::vector<std::string> ids;
  std::string output;
};
} // namespace

/// The tokens of new sequences, one of each in turn, so that every call is a
/// ragged batch. `rowOf` gets the row of each token in the order of the
/// sequences.
static std::vector<Token>
raggedBatch(Engine &engine, std::span<const std::vector<int32_t>> sequences,
            std::vector<size_t> &rowOf) {
  std::vector<Token> batch;
  std::vector<SequenceId> open;
  size_t longest = 0;
  for (const std::vector<int32_t> &ids : sequences) {
    open.push_back(engine.state().open());
    longest = std::max(longest, ids.size());
  }
  for (size_t position = 0; position < longest; ++position) {
    size_t firstRow = 0;
    for (size_t i = 0; i < sequences.size(); firstRow += sequences[i++].size())
      if (position < sequences[i].size()) {
        batch.push_back({sequences[i][position], open[i],
                         static_cast<int64_t>(position), true});
        rowOf.push_back(firstRow + position);
      }
  }
  return batch;
}

static void logits(const LogitsCommand &command) {
  Model opened(command.file.path());
  const ModelInfo &model = opened.info();
  model.output.requireLogits(opened.path());
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string &text : command.ids)
    model.requirePrompt(sequences.emplace_back(parseIds(text, "--ids")),
                        "--ids");
  OutputFile output(command.output);
  EngineOptions options = command.options(opened);
  options.sequences = static_cast<int32_t>(sequences.size());
  const std::unique_ptr<Engine> started = command.start(opened, options);
  Engine &engine = *started;
  std::vector<size_t> rowOf;
  const std::vector<Token> batch = raggedBatch(engine, sequences, rowOf);

  const std::string header = npyHeader(batch.size(), model.vocabSize);
  output.write(header.data(), header.size());
  // A row waits until all rows of earlier sequences are written.
  std::vector<std::vector<float>> waiting(batch.size());
  size_t written = 0;
  engine.forward(batch, [&](size_t index, std::span<float> row) {
    waiting[rowOf[index]].assign(row.begin(), row.end());
    for (; written < batch.size() && !waiting[written].empty(); ++written) {
      output.write(waiting[written].data(), row.size_bytes());
      waiting[written] = {};
    }
  });
  finishCheck(opened, engine);
  output.commit();
}

void qwen::run::addLogits(const Command &program) {
  const auto command = std::make_shared<LogitsCommand>();
  const Command sub = program.addCommand(
      "logits", "Write the logits of each token, f32 [T, V], for NumPy");
  addFile(sub, command->file);
  sub.addTexts("--ids", command->ids,
               "Token ids (1,2,3); repeat the option for each sequence of a "
               "batch")
      .required()
      .repeatable();
  sub.addText("-o,--output", command->output, "File to write (.npy)")
      .type(kFileType)
      .required();
  addRun(sub, *command, {EnginePart::Calls});
  sub.onRun([command] { logits(*command); });
}
