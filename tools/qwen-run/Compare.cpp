//===- Compare.cpp - How far one model is from another --------------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "ProgressBar.h"
#include "engine/Logprobs.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

using namespace qwen;
using namespace qwen::run;

namespace {
/// `file` is the reference.
struct CompareCommand : RunFlags {
  ModelFile model;
  std::string text;
  /// Tokens of a window, and its first rows that are not scored: the second
  /// half counts, as in llama.cpp's perplexity tool.
  int64_t window = 512;
  std::optional<int64_t> skip;
  std::optional<int64_t> windows;
  bool json = false;

  int64_t skippedRows() const { return skip.value_or(window / 2); }
};
} // namespace

/// The options of a contestant, whose sequence has the pages of a window: the
/// other one needs memory, too.
static EngineOptions optionsOf(const CompareCommand &command,
                               const Model &model) {
  EngineOptions options = command.options(model);
  options.kvPages = ceilDiv(command.window, kPageTokens);
  return options;
}

namespace {
/// A model and the sequence of its current window.
class Contestant {
public:
  Contestant(const Model &model, const std::shared_ptr<ThreadPool> &pool,
             const std::shared_ptr<MemoryBudget> &budget,
             const CompareCommand &command)
      : model(model),
        engine(makeEngine(model, pool, budget, optionsOf(command, model))) {}

  /// Runs `ids` from position `first` on of the current window, and gives the
  /// logits of each token if `row` is there. Position 0 starts a window.
  void run(std::span<const int32_t> ids, int64_t first,
           const Engine::RowFn &row = {}) {
    if (first == 0) {
      if (sequence)
        engine->state().close(*sequence);
      sequence = engine->state().open();
    }
    batch.clear();
    for (int32_t id : ids)
      batch.push_back({id, *sequence, first++, static_cast<bool>(row)});
    engine->forward(batch, row);
  }

  void finish() { finishCheck(model, *engine); }

private:
  const Model &model;
  const std::unique_ptr<Engine> engine;
  std::optional<SequenceId> sequence;
  std::vector<Token> batch;
};

/// The figures of all scored tokens.
struct Scores {
  std::vector<double> divergences;
  /// -log p of each token, by the reference and by the model.
  std::array<std::vector<double>, 2> losses;
  int64_t sameTop = 0;

  void add(std::span<const float> reference, std::span<const float> model,
           int32_t next) {
    const double referenceSum = logSumExp(reference);
    const double modelSum = logSumExp(model);
    divergences.push_back(
        klDivergence(reference, referenceSum, model, modelSum));
    const auto at = static_cast<size_t>(next);
    losses[0].push_back(referenceSum - reference[at]);
    losses[1].push_back(modelSum - model[at]);
    sameTop += std::ranges::max_element(reference) - reference.begin() ==
               std::ranges::max_element(model) - model.begin();
  }
};

/// A mean with its standard error.
struct Mean {
  double value;
  double error;
};

} // namespace

static Mean mean(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double value : values)
    sum += value;
  for (double value : values)
    squares += std::pow(value - sum / count, 2);
  return {sum / count,
          values.size() > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

/// exp of the mean loss; its error is the mean's, to first order.
static Mean perplexity(std::span<const double> losses) {
  const Mean loss = mean(losses);
  return {std::exp(loss.value), std::exp(loss.value) * loss.error};
}

/// The value at `share` of sorted values, interpolated between neighbours.
static double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double above = sorted[std::min(below + 1, sorted.size() - 1)];
  return sorted[below] +
         (place - static_cast<double>(below)) * (above - sorted[below]);
}

/// Scores the rows from `skip` on of a window, but for the last, which has no
/// next token. Rows of both models exist for one call's tokens at a time.
static void scoreWindow(Contestant &reference, Contestant &model,
                        std::span<const int32_t> ids, int64_t skip,
                        int64_t callRows, Scores &scores) {
  const auto skipped = static_cast<size_t>(skip);
  if (skipped > 0) {
    reference.run(ids.first(skipped), 0);
    model.run(ids.first(skipped), 0);
  }
  std::vector<std::vector<float>> rows;
  for (size_t first = skipped; first + 1 < ids.size();) {
    const size_t count =
        std::min(static_cast<size_t>(callRows), ids.size() - 1 - first);
    const std::span piece = ids.subspan(first, count);
    rows.resize(count);
    reference.run(piece, static_cast<int64_t>(first),
                  [&](size_t index, std::span<float> row) {
                    rows[index].assign(row.begin(), row.end());
                  });
    model.run(piece, static_cast<int64_t>(first),
              [&](size_t index, std::span<float> row) {
                scores.add(rows[index], row, ids[first + index + 1]);
              });
    first += count;
  }
}

static void print(const Scores &scores, int64_t windows,
                  const CompareCommand &command) {
  std::vector<double> sorted = scores.divergences;
  std::ranges::sort(sorted);
  const Mean divergence = mean(scores.divergences);
  const Mean reference = perplexity(scores.losses[0]);
  const Mean model = perplexity(scores.losses[1]);
  const double same =
      static_cast<double>(scores.sameTop) / static_cast<double>(sorted.size());
  constexpr std::array kShares = {0.5, 0.9, 0.95, 0.99, 0.999, 1.0};
  if (command.json) {
    std::vector<JsonText> quantiles;
    quantiles.reserve(kShares.size());
    for (double share : kShares)
      quantiles.push_back(
          jsonObject({{"share", share}, {"kl", quantile(sorted, share)}}));
    const auto pair = [](const Mean &mean) {
      return jsonObject({{"mean", mean.value}, {"standard_error", mean.error}});
    };
    writeObject({{"tokens_scored", sorted.size()},
                 {"windows", windows},
                 {"window", command.window},
                 {"skip", command.skippedRows()},
                 {"kl", pair(divergence)},
                 {"kl_quantiles", jsonArray(quantiles)},
                 {"same_top", same},
                 {"reference_perplexity", pair(reference)},
                 {"perplexity", pair(model)}});
    return;
  }
  char line[128];
  const auto write = [&](const char *format, auto... values) {
    snprintf(line, sizeof(line), format, values...);
    writeOut(line);
  };
  write("KL divergence        %.6f +- %.6f\n", divergence.value,
        divergence.error);
  for (double share : kShares)
    write("  %5.1f%% of tokens    %.6f\n", share * 100,
          quantile(sorted, share));
  write("same first token     %.2f%%\n", same * 100);
  write("reference perplexity %.4f +- %.4f\n", reference.value,
        reference.error);
  write("perplexity           %.4f +- %.4f (%+.2f%%)\n", model.value,
        model.error, (model.value / reference.value - 1) * 100);
  write("tokens scored        %zu\n", sorted.size());
}

/// Throws Error if the models do not give probabilities of the same tokens.
static void requireSameTokens(const Model &reference, const Model &model) {
  for (const Model *each : {&reference, &model})
    each->info().output.requireLogits(each->path());
  const int64_t expected = reference.info().vocabSize;
  const int64_t found = model.info().vocabSize;
  if (found != expected)
    throw Error(model.path() + " has " + std::to_string(found) +
                " logits when " + reference.path() + " has " +
                std::to_string(expected) +
                ": only models of one vocabulary can be compared");
  if (!std::ranges::equal(reference.artifact().tokenizer(),
                          model.artifact().tokenizer()))
    throw Error(reference.path() + " and " + model.path() +
                " have different tokenizers: only models of one tokenizer can "
                "be compared");
}

/// Throws Error if the window is too long for a model or scores nothing.
static void checkWindow(const CompareCommand &command, const ModelInfo &model) {
  if (command.window > model.context)
    throw Error("the window is " + std::to_string(command.window) +
                " tokens when " + model.describeContext());
  if (command.skippedRows() > command.window - 2)
    throw Error("--skip is " + std::to_string(command.skippedRows()) +
                " when at most " + std::to_string(command.window - 2) +
                " tokens can be skipped of a window of " +
                std::to_string(command.window));
}

static void compare(const CompareCommand &command) {
  Model reference(command.file.path()), model(command.model.path());
  requireSameTokens(reference, model);
  for (const Model *each : {&reference, &model})
    checkWindow(command, each->info());
  const std::vector<int32_t> ids = reference.tokenizer().encode(
      readFile(command.text, Tokenizer::kMaxTextBytes, kLongestText));
  const int64_t windows =
      std::min(std::ssize(ids) / command.window,
               command.windows.value_or(std::numeric_limits<int64_t>::max()));
  if (windows == 0)
    throw Error(command.text + " has " + std::to_string(ids.size()) +
                " tokens when a window has " + std::to_string(command.window));
  const std::shared_ptr<ThreadPool> pool = command.pool();
  const std::shared_ptr<MemoryBudget> budget = command.budget();
  Contestant first(reference, pool, budget, command),
      second(model, pool, budget, command);
  const int64_t callRows = std::min(reference.manifest().forward().limits.rows,
                                    model.manifest().forward().limits.rows);

  Scores scores;
  {
    ProgressBar progress("comparing");
    for (int64_t i = 0; i < windows; ++i) {
      progress.update(static_cast<uint64_t>(i), static_cast<uint64_t>(windows));
      scoreWindow(
          first, second,
          std::span(ids).subspan(static_cast<size_t>(i * command.window),
                                 static_cast<size_t>(command.window)),
          command.skippedRows(), callRows, scores);
    }
  }
  first.finish();
  second.finish();
  print(scores, windows, command);
}

void qwen::run::addCompare(const Command &program) {
  const auto command = std::make_shared<CompareCommand>();
  const Command sub = program.addCommand(
      "compare", "Compute how far a model's probabilities are from another's");
  sub.footer(
      "The text is cut into windows; a rest that is shorter is left out. Each\n"
      "window runs alone. Its rows after the skipped ones are scored, but for\n"
      "the last, which has no next token: with the defaults, this is the rule\n"
      "of llama.cpp's perplexity tool. The KL divergence of a row is the sum\n"
      "of p log(p / q) over all tokens: p is the reference's probability, q\n"
      "the model's.");
  addFile(sub, command->file, "REFERENCE", "The reference, such as one in f32");
  command->model.shareFlags(command->file);
  addFile(sub, command->model, "MODEL", "The model to compare with it");
  sub.addText("TEXT", command->text, "Text file").required();
  sub.addNumber("--window", command->window, "Tokens in a window", 2, kMost);
  sub.addNumber(
      "--skip", command->skip,
      "First tokens of a window whose rows are not scored; default is "
      "half of the window",
      0, kMost);
  sub.addNumber("--windows", command->windows,
                "Maximum number of windows; default is the whole text", 1,
                kMost);
  sub.addFlag("--json", command->json, "Print JSON");
  addRun(sub, *command);
  sub.onRun([command] { compare(*command); });
}
