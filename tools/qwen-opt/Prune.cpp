//===- Prune.cpp - The command line of pruning ----------------------------===//

#include "Prune.h"

#include "CommandLine.h"
#include "ProgressBar.h"
#include "calibration/PruneLayers.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

static constexpr char kLayersName[] = "layers";

void qwen::addPruning(const Command &command, CalibrateFlags &flags) {
  std::string help = "Remove layers before all else: layers:3,7-9 those";
  std::vector<std::string> beginnings = {std::string(kLayersName) + ":"};
  for (const PruningMethod &method : kPruningMethods) {
    beginnings.push_back(std::string(method.name) + ":");
    help += "; " + std::string(method.name) + ":N N layers, " +
            std::string(method.help);
  }
  command
      .addText("--prune", flags.prune,
               help + "; the text is that of --calibrate, or qwen-opt's own; "
                      "default is none")
      .suggest(beginnings);
}

/// Adds the numbers of "3,7-9" to `layers`. Returns whether it is such a list.
static bool parseLayers(llvm::StringRef list, std::vector<int64_t> &layers) {
  constexpr int64_t kMost = 1 << 20;
  llvm::SmallVector<llvm::StringRef> parts;
  list.split(parts, ',');
  for (llvm::StringRef part : parts) {
    const auto [begin, end] = part.split('-');
    int64_t first = 0, last = 0;
    if (begin.getAsInteger(10, first) || first < 0)
      return false;
    if (!part.contains('-'))
      last = first;
    else if (end.getAsInteger(10, last) || last < first || last > kMost)
      return false;
    for (; first <= last; ++first)
      layers.push_back(first);
  }
  llvm::sort(layers);
  layers.erase(llvm::unique(layers), layers.end());
  return true;
}

static void print(const PruningReport &report, const Pruning &pruning) {
  llvm::errs() << pruning.describe() << ": perplexity "
               << llvm::format("%.4f to %.4f", report.perplexityBefore,
                               report.perplexityAfter)
               << llvm::format(", KL divergence %.4f", report.divergence)
               << "\n  scores";
  for (double score : report.scores)
    llvm::errs() << llvm::format(" %.5f", score);
  llvm::errs() << '\n';
}

void qwen::applyPruning(const Command &command, const CalibrateFlags &flags,
                        const std::string &checkpoint, CompileOptions &options,
                        CompileHooks &hooks) {
  const std::string &text = flags.prune;
  if (text.empty())
    return;
  const auto [name, argument] = llvm::StringRef(text).split(':');
  if (name == kLayersName) {
    options.pruning.method = kLayersName;
    if (!parseLayers(argument, options.pruning.layers))
      throw UsageError(command,
                       "--prune has " + quote(text) +
                           " when a list of layers like layers:3,7-9 is "
                           "needed");
    return;
  }
  const auto *method = llvm::find_if(kPruningMethods, [&](const auto &each) {
    return name == llvm::StringRef(each.name);
  });
  int64_t count = 0;
  if (method == std::end(kPruningMethods) || argument.getAsInteger(10, count) ||
      count < 1)
    throw UsageError(command, "--prune has " + quote(text) +
                                  " when shortgpt:N, sleb:N or layers:LIST is "
                                  "needed");
  if (!command.option("-o").isGiven())
    throw UsageError(command, "--prune " + name.str() + " needs -o");
  // A budget compiles twice.
  hooks.chooseLayers = [=, chosen = std::make_shared<std::optional<Pruning>>()](
                           const QuantizeInput &input) {
    if (*chosen)
      return **chosen;
    const CalibrationText windows =
        calibrationText(flags, checkpoint, "--prune")(input);
    std::optional<ProgressBar> bar(std::in_place, "pruning");
    const PruningReport report = method->choose(
        input, windows, count,
        [&](uint64_t done, uint64_t total) { bar->update(done, total); });
    bar.reset();
    const Pruning pruning = {std::string(method->name), report.layers};
    print(report, pruning);
    *chosen = pruning;
    return pruning;
  };
}
