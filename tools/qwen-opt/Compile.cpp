//===- Compile.cpp - The compiler's run and its commands ------------------===//

#include "Compile.h"

#include "Calibrate.h"
#include "CommandLine.h"
#include "CommandTree.h"
#include "Commands.h"
#include "CompileFlags.h"
#include "ExitCodes.h"
#include "Limits.h"
#include "PrintSummary.h"
#include "ProgressBar.h"
#include "Prune.h"
#include "Verify.h"
#include "jinja/ChatTemplate.h"

#include "calibration/Calibration.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"
#include "qwen/Support/OutputTarget.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include "llvm/Support/raw_ostream.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <optional>

using namespace qwen;

static void printWarning(const std::string &warning) {
  llvm::errs() << "qwen-opt: warning: " << warning << '\n';
}

/// The adapter PATH or PATH=SCALE. A path may have a "=" of its own.
static AdapterOption parseAdapter(const std::string &text) {
  const size_t at = text.rfind('=');
  if (at == text.npos)
    return {text};
  const char *begin = text.data() + at + 1, *end = text.data() + text.size();
  double scale = 0;
  const auto [rest, error] = std::from_chars(begin, end, scale);
  if (error != std::errc() || rest != end)
    return {text};
  if (!(std::abs(scale) <= kMostAdapterScale))
    throw Error(part::subject("--lora") + " has the scale " +
                part::found(std::string(begin, end)) + " when " +
                part::needed("a number from -1e9 to 1e9") + " is needed");
  return {text.substr(0, at), scale};
}

/// Writes a file that is complete or absent.
static void writeFile(const std::string &path, const std::string &text) {
  TemporaryFile file(path);
  if (const int error = writeAll(file.descriptor(), text.data(), text.size()))
    throw Error("cannot write " + part::file(path) + ": " +
                part::found(std::strerror(error)));
  file.commit();
}

/// The choice that a value of --weights names; nothing for empty text.
static std::optional<WeightChoice> weightChoice(const std::string &text) {
  if (text.empty())
    return std::nullopt;
  if (text == kKeepFormat)
    return KeepFormats();
  if (const auto plan = parseWeightPlan(text))
    return *plan;
  return *parseWeightFormat(text);
}

/// The value of --weights, or its default, if no other option gives formats.
static std::string_view weightsAlone(const CompileArguments &arguments) {
  if (!arguments.plan.empty() || arguments.budget.budget ||
      !arguments.options.tensorWeights.empty())
    return {};
  return arguments.weights.empty() ? infoOf(kDefaultPlan).name
                                   : std::string_view(arguments.weights);
}

/// Tells what was compiled in `seconds`: its facts, or in place of them one
/// line where the caller reads the progress.
static void tell(const CompileArguments &arguments,
                 const CompileSummary &summary,
                 const std::vector<std::string> &lines, double seconds) {
  const std::string_view weights = weightsAlone(arguments);
  if (!ProgressBar::isReported())
    printSummary(arguments.output, summary, weights, lines, seconds);
  else if (const auto advice = calibrationAdvice(summary, weights))
    llvm::errs() << "qwen-opt: note: " << *advice << '\n';
}

/// Where the command line has a budget: writes the plan into `planned`, which
/// the compile then reads.
static void planWithin(CompileArguments &arguments, MemoryFile &planned) {
  if (!arguments.budget.budget)
    return;
  planned.write(planByBudget(arguments.budget, arguments.calibrate,
                             arguments.checkpoint, arguments.options,
                             arguments.hooks));
  arguments.options.plan = planned.path();
}

/// Prints the stage of --emit.
static void printStage(const CompileArguments &arguments) {
  llvm::outs() << emit(arguments.checkpoint, *parseEmittedStage(arguments.emit),
                       arguments.options, arguments.hooks);
}

static void compile(CompileArguments &arguments) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string &text : arguments.adapters)
    arguments.options.adapters.push_back(parseAdapter(text));
  arguments.options.weights = weightChoice(arguments.weights);
  arguments.options.kv = parseKvFormat(arguments.kv);
  arguments.options.chatTemplate = arguments.chatTemplate;
  arguments.options.plan = arguments.plan;
  uint64_t adapterBytes = 0;
  for (const AdapterOption &adapter : arguments.options.adapters)
    adapterBytes += weightFileBytes(adapter.path);
  checkLimits(arguments.checkpoint, adapterBytes);

  CompileHooks &hooks = arguments.hooks;
  hooks.warn = printWarning;
  hooks.checkTemplate = [](const std::string &text) {
    ChatTemplate::parse(text);
  };
  if (!arguments.emit.empty())
    return printStage(arguments);
  // A bar of "reading" would stand in the way of warnings.
  if (ProgressBar::isReported())
    ProgressBar("reading").update(0, 1);
  // The file comes first, so that an error about it comes at once. The other
  // inputs are compared with it as they are opened.
  for (const std::string &input :
       {arguments.checkpoint, arguments.plan, arguments.imatrix})
    if (!input.empty())
      noteInput(input);
  TemporaryFile output(arguments.output);
  const std::string saved =
      output.isStream() ? "" : calibrationFolder(arguments.output);
  std::vector<std::string> lines;
  addCalibrationHooks(arguments.calibrate, arguments.options.quantizer,
                      arguments.checkpoint, saved, lines, hooks);
  addDraftHook(arguments.drafts, hooks);
  MemoryFile planned;
  planWithin(arguments, planned);
  std::optional<ProgressBar> bar;
  hooks.progress = [&](uint64_t done, uint64_t total) {
    if (!bar)
      bar.emplace("packing");
    bar->update(done, total);
  };
  hooks.check = [&](const std::string &file, llvm::ArrayRef<TargetCode> targets,
                    const ArtifactInput &input) {
    if (arguments.verify)
      llvm::append_range(
          lines, verifyArtifact(file, arguments.runner, targets, input));
  };
  const CompileSummary summary =
      compileModel(arguments.checkpoint, output, arguments.options, hooks);
  bar.reset();
  if (!arguments.savePlan.empty())
    writeFile(arguments.savePlan, summary.plan);
  if (hooks.quantize && !saved.empty())
    removeSavedCalibration(saved);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  tell(arguments, summary, lines, seconds.count());
}

/// Throws UsageError if the plan would replace the compiled file.
static void checkPlan(const Command &command,
                      const CompileArguments &arguments) {
  namespace fs = std::filesystem;
  if (!arguments.savePlan.empty() && fs::weakly_canonical(arguments.savePlan) ==
                                         fs::weakly_canonical(arguments.output))
    throw UsageError(command, "-o and --save-plan name the same file, " +
                                  quote(arguments.output));
}

/// Lets an importance matrix be of use: by the quantizer search. Throws
/// UsageError if another one is named.
static void checkImportance(const Command &command,
                            CompileArguments &arguments) {
  if (arguments.imatrix.empty())
    return;
  CompileOptions &options = arguments.options;
  if (options.quantizer && options.quantizer != Quantizer::Search)
    throw UsageError(command, "--imatrix has no effect on --quantizer " +
                                  arguments.quantizer);
  if (arguments.plan.empty())
    options.quantizer = Quantizer::Search;
  options.imatrix = arguments.imatrix;
}

/// What the command line lacks to compile. Throws UsageError.
static void checkArguments(const Command &command,
                           CompileArguments &arguments) {
  if (!command.option("CHECKPOINT").isGiven())
    throw UsageError(command, "CHECKPOINT is missing");
  if (!command.option("--emit").isGiven() && !command.option("-o").isGiven())
    throw UsageError(command, "-o or --emit is missing");
  if (arguments.drafts.tokens && !command.option("-o").isGiven())
    throw UsageError(command, "--draft-vocabulary needs -o");
  if (arguments.progress >= 0 && fcntl(arguments.progress, F_GETFD) < 0)
    throw UsageError(command, "--progress has " +
                                  std::to_string(arguments.progress) +
                                  " when an open file descriptor is needed");
  checkPlan(command, arguments);
  ProgressBar::report(arguments.progress);
  arguments.options.quantizer =
      chooseQuantizer(command, arguments.calibrate, arguments.quantizer);
  checkImportance(command, arguments);
  checkBudget(command, arguments.budget, arguments.options);
  applyPruning(command, arguments.calibrate, arguments.checkpoint,
               arguments.options, arguments.hooks);
}

int qwen::compileMain(int argc, char **argv) {
  CompileArguments arguments;
  const Program program(
      "qwen-opt",
      "Compiles models for qwen-run: a checkpoint becomes one file.\n"
      "qwen-opt FILE.mlir runs passes (see qwen-opt - --help).");
  program.addVersion(std::string("qwen-opt ") + projectVersion());
  addCompileFlags(program, arguments);
#define QWEN_OPT_COMMAND(Name, Text) add##Name(program);
#include "Commands.def"
  const auto write = [](const std::string &text) { llvm::outs() << text; };
  addCompletionCommand(program, write);
  addManualCommand(program, write);
  const auto fail = [&](const std::exception &error, const char *message) {
    llvm::errs() << program.chosen().value_or(program).fullName() << ": "
                 << message << '\n';
    return exitCodeOf(error);
  };
  try {
    if (!program.parse(argc, argv) || program.chosen())
      return 0;
    if (arguments.list) {
      listTargets(arguments.json);
      return 0;
    }
    checkArguments(program, arguments);
    compile(arguments);
  } catch (const std::bad_alloc &error) {
    return fail(error, "out of memory");
  } catch (const std::exception &error) {
    return fail(error, error.what());
  }
  return 0;
}
