//===- Evaluate.cpp - Logits and perplexity -------------------------------===//

#include "Commands.h"
#include "Output.h"
#include "engine/Batcher.h"
#include "engine/Logprobs.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qwen;
using namespace qwen::run;

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

void qwen::run::logits(const LogitsCommand &command) {
  Model opened(command.file);
  const ModelInfo &model = opened.info();
  model.output.requireLogits(opened.path());
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string &text : command.ids)
    model.requirePrompt(sequences.emplace_back(parseIds(text, "--ids")),
                        "--ids");
  OutputFile output(command.output);
  EngineOptions options = command.options(opened);
  options.sequences = static_cast<int32_t>(sequences.size());
  options.callTokens = command.piece;
  Engine &engine = command.start(opened, options);
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
  finishCheck(opened);
  output.commit();
}

/// Sum of -log p of the ids from index `first` on, each given the ids before
/// it.
static double scoreWindow(Batcher &batcher, const ModelInfo &model,
                          std::span<const int32_t> ids, size_t first) {
  double sum = 0;
  size_t next = first;
  Request request;
  // The row of a token scores the token after it, so the last has no use.
  request.prompt.assign(ids.begin(), ids.end() - 1);
  request.rows = {RowKind::Logits,
                  [&](std::span<const float> row) {
                    sum += logSumExp(row) - row[static_cast<size_t>(ids[next])];
                    ++next;
                  },
                  ids.size() - first};
  std::string error;
  request.onEnd = [&](const Ending &ending) { error = ending.error; };
  batcher.add(std::make_unique<Job>(std::move(request), 1, model));
  while (!batcher.isIdle())
    batcher.step();
  if (!error.empty())
    throw Error(error);
  return sum;
}

void qwen::run::perplexity(const PerplexityCommand &command) {
  Model opened(command.file);
  const ModelInfo &model = opened.info();
  model.output.requireLogits(opened.path());
  const Tokenizer &tokenizer = opened.tokenizer();
  const int64_t window = command.window.value_or(model.context);
  const int64_t stride =
      command.stride.value_or(std::min<int64_t>(window, 512));
  if (window < 2 || window > model.context)
    throw Error("the window is " + std::to_string(window) +
                " tokens when at least 2 are needed and " +
                model.describeContext());
  if (stride > window)
    throw Error("the stride is " + std::to_string(stride) +
                " tokens when at most the window of " + std::to_string(window) +
                " is possible: the tokens between two windows would not be "
                "scored");
  const std::vector<int32_t> ids = tokenizer.encode(
      readFile(command.text, Tokenizer::kMaxTextBytes, kLongestText));
  const auto total = static_cast<int64_t>(ids.size());
  if (total < 2)
    throw Error(command.text + " has " + std::to_string(total) +
                " tokens when at least 2 are needed");
  Batcher batcher(command.start(opened, command.options(opened)),
                  {.paced = false});

  double sum = 0;
  int64_t scored = 0;
  // Earlier windows have seen the tokens before `next`.
  for (int64_t begin = 0, next = 0; next < total; begin += stride) {
    const int64_t end = std::min(begin + window, total);
    const int64_t first = std::max(next, begin + 1);
    next = end;
    if (first == end)
      continue;
    sum += scoreWindow(batcher, model,
                       std::span(ids).subspan(static_cast<size_t>(begin),
                                              static_cast<size_t>(end - begin)),
                       static_cast<size_t>(first - begin));
    scored += end - first;
  }
  finishCheck(opened);
  const double value = std::exp(sum / static_cast<double>(scored));
  if (command.json) {
    writeOut(nlohmann::json({{"perplexity", value},
                             {"tokens_scored", scored},
                             {"window", window},
                             {"stride", stride}})
                 .dump() +
             "\n");
    return;
  }
  char line[128];
  snprintf(line, sizeof(line), "perplexity %.6f\ntokens scored %lld\n", value,
           static_cast<long long>(scored));
  writeOut(line);
}
