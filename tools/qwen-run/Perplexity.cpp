//===- Perplexity.cpp - Perplexity of a text ------------------------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "engine/Batcher.h"
#include "engine/Logprobs.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>

using namespace qwen;
using namespace qwen::run;

namespace {
struct PerplexityCommand : RunFlags {
  std::string text;
  std::optional<int64_t> window;
  std::optional<int64_t> stride;
  bool json = false;
};
} // namespace

/// Sum of -log p of the ids from index `first` on, each given the ids before
/// it.
static double scoreWindow(Batcher &batcher, const ModelInfo &model,
                          std::span<const int32_t> ids, size_t first) {
  double sum = 0;
  size_t next = first;
  Request request;
  // The row of a token scores the token after it, so the last has no use.
  request.prompt.ids.assign(ids.begin(), ids.end() - 1);
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

static void perplexity(const PerplexityCommand &command) {
  Model opened(command.file.path());
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
  const std::unique_ptr<Engine> engine =
      command.start(opened, command.options(opened));
  Batcher batcher(*engine, {.paced = false});

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
  finishCheck(opened, *engine);
  const double value = std::exp(sum / static_cast<double>(scored));
  if (command.json) {
    writeObject({{"perplexity", value},
                 {"stride", stride},
                 {"tokens_scored", scored},
                 {"window", window}});
    return;
  }
  char line[128];
  snprintf(line, sizeof(line), "perplexity %.6f\ntokens scored %lld\n", value,
           static_cast<long long>(scored));
  writeOut(line);
}

void qwen::run::addPerplexity(const Command &program) {
  const auto command = std::make_shared<PerplexityCommand>();
  const Command sub =
      program.addCommand("perplexity", "Compute the perplexity of a text");
  sub.footer(
      "Perplexity is exp(mean(-log p)) over the scored tokens. Windows slide\n"
      "over the text. A window scores the tokens that no earlier window has\n"
      "seen, except its own first token, which has no context there. If the\n"
      "stride is less than the window, every token but the first is scored.");
  addFile(sub, command->file);
  sub.addText("TEXT", command->text, "Text file").required();
  sub.addNumber("--window", command->window,
                "Tokens in a window; default is the model's context", 2, kMost);
  sub.addNumber(
      "--stride", command->stride,
      "Tokens between the starts of two windows; default is the window, "
      "at most 512",
      1, kMost);
  sub.addFlag("--json", command->json, "Print JSON");
  addRun(sub, *command);
  sub.onRun([command] { perplexity(*command); });
}
