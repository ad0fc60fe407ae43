//===- Compile.cpp - The command line of the compiler ---------------------===//

#include "Compile.h"

#include "Calibrate.h"
#include "CommandLine.h"
#include "CommandTree.h"
#include "Commands.h"
#include "CompileOptions.h"
#include "ExitCodes.h"
#include "Limits.h"
#include "PrintSummary.h"
#include "ProgressBar.h"
#include "Prune.h"
#include "Verify.h"
#include "jinja/ChatTemplate.h"

#include "qwen/Calibration/Calibration.h"
#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <fcntl.h>
#include <new>

using namespace qwen;

namespace {
/// The arguments of the command line.
struct Arguments {
  std::string checkpoint, output, emit, runner, weights, quantizer, rotate, kv;
  std::string chatTemplate;
  std::vector<std::string> adapters;
  CompileOptions options;
  CalibrateFlags calibrate;
  CompileHooks hooks;
  bool verify = false, list = false, json = false;
  int32_t progress = -1;
};
} // namespace

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

static std::vector<std::string> weightFormatNames() {
  std::vector<std::string> names = {kKeepFormat.str()};
  for (WeightFormat format : kWeightFormats)
    names.emplace_back(weightFormatName(format));
  return names;
}

/// The bits of a weight in each format, and when to choose it. docs/generate.py
/// reads it.
static std::string weightFormatUses() {
  std::string text;
  for (WeightFormat format : kWeightFormats) {
    // All formats have whole blocks of so many values.
    constexpr int64_t kValues = 256;
    const double bits = 8 * static_cast<double>(panelBytes(format, kValues)) /
                        (kPanelOutputs * kValues);
    llvm::raw_string_ostream(text)
        << "; " << weightFormatName(format) << " (" << llvm::format("%g", bits)
        << " bits): " << infoOf(format).use;
  }
  return text;
}

static std::vector<std::string> kvFormatNames() {
  std::vector<std::string> names;
  for (KvFormat format : kKvFormats)
    names.emplace_back(kvFormatName(format));
  return names;
}

static std::vector<std::string> quantizerNames() {
  std::vector<std::string> names;
  for (Quantizer quantizer : kQuantizers)
    names.emplace_back(infoOf(quantizer).name);
  return names;
}

static std::vector<std::string> stageNames() {
  std::vector<std::string> names;
  for (EmittedStage stage : kEmittedStages)
    names.emplace_back(emittedStageName(stage));
  return names;
}

static void addTargets(CLI::App &app, Arguments &arguments) {
  CLI::Option *target =
      app.add_option(
             "--target", arguments.options.target,
             "native, a CPU (neoverse-n1, znver4, ...) or features in the "
             "syntax of clang's -march; a list a,b,c makes one file that "
             "runs the best target on each machine; --list-targets names "
             "the CPUs")
          ->capture_default_str();
  std::vector<std::string> names = {"native"};
  for (const NamedTarget &named : namedTargets())
    names.emplace_back(named.name);
  suggest(target, names);
  CLI::Option *list =
      app.add_flag("--list-targets", arguments.list,
                   "print the named CPUs, their features and their kernels");
  app.add_flag("--json", arguments.json, "print that list as JSON")
      ->needs(list);
}

static void addFormats(CLI::App &app, Arguments &arguments) {
  app.add_option("--weights", arguments.weights,
                 "format of the matrices; default is keep for a file of "
                 "integers, else " +
                     std::string(weightFormatName(kDefaultWeights)) +
                     "; keep: the format of each matrix in the checkpoint, or "
                     "the nearest" +
                     weightFormatUses())
      ->check(CLI::IsMember(weightFormatNames()));
  app.add_option(
      "--tensor-weights", arguments.options.tensorWeights,
      "format of the matrices whose names match a regular expression "
      "(RE2); repeatable, the last match wins");
  std::string quantizers;
  for (const std::string &name : quantizerNames())
    quantizers +=
        "; " + name + " " + std::string(infoOf(*parseQuantizer(name)).help);
  app.add_option("--quantizer", arguments.quantizer,
                 "what chooses integers that the checkpoint does not have" +
                     quantizers + "; default is rtn")
      ->check(CLI::IsMember(quantizerNames()));
  addCalibration(app, arguments.calibrate);
  app.add_option("--rotate", arguments.rotate,
                 "fold rotations into the weights, so that no channel of the "
                 "activations is much larger than the others; auto does so "
                 "with gptq and with q8_0; default is auto")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kRotateNames),
                                                     std::end(kRotateNames))));
  app.add_flag(
      "!--no-grids", arguments.options.grids,
      "quantize matrices of floats anew that were trained for a format "
      "of integers, or dequantized; without it, and without a format, "
      "they keep these integers");
  app.add_option("--ignore-tensors", arguments.options.ignoredTensors,
                 "compile without the tensors that the model does not know "
                 "and whose names in the file match a regular expression "
                 "(RE2); repeatable");
  app.add_option("--kv", arguments.kv,
                 "format of the KV cache; default is f32 with f32 weights, "
                 "else f16")
      ->check(CLI::IsMember(kvFormatNames()));
}

/// Reads "yarn:FACTOR" or "yarn:FACTOR:POSITIONS".
static RopeScaling parseRopeScaling(const std::string &text) {
  static const std::string kOption = "--rope-scaling";
  const auto [kind, numbers] = llvm::StringRef(text).split(':');
  const auto [factor, positions] = numbers.split(':');
  if (kind != "yarn")
    throw CLI::ValidationError(
        kOption, quote(text) + " is not yarn:FACTOR or yarn:FACTOR:POSITIONS");
  RopeScaling scaling = {parseNumber(kOption, factor.str(), 1.0, 1e6)};
  if (numbers.contains(':'))
    scaling.positions =
        parseNumber<int64_t>(kOption, positions.str(), 1, kMaxModelPosition);
  return scaling;
}

/// Adds what replaces parts of the checkpoint's files.
static void addReplacements(CLI::App &app, Arguments &arguments) {
  app.add_option("--chat-template", arguments.chatTemplate,
                 "file with a chat template (Jinja) in place of the "
                 "checkpoint's")
      ->needs(app.get_option("-o"));
  app.add_option(
      "--rope-scaling",
      [&arguments](const CLI::results_t &texts) {
        arguments.options.ropeScaling = parseRopeScaling(texts.front());
        return true;
      },
      "make the context FACTOR times as long by YaRN, as rope_scaling of "
      "config.json does; POSITIONS are those in training, by default the "
      "checkpoint's maximum");
}

static void addLimits(CLI::App &app, CompileOptions &options) {
  addNumber(&app, "--context", options.context,
            "maximum length of a sequence; default is the checkpoint's "
            "maximum",
            1, int64_t{1} << 30);
  addNumber(&app, "--max-tokens", options.maxTokens,
            "maximum number of tokens in a call; default is " +
                std::to_string(kDefaultMaxTokens),
            1, kMostTokens);
  addNumber(&app, "--max-rows", options.maxRows,
            "maximum number of rows of logits in a call, which is the number "
            "of sequences that decode together; default is " +
                std::to_string(kDefaultMaxRows) +
                ", or --max-tokens if that "
                "is less",
            1, kMostTokens);
  addNumber(&app, "--step-back", options.stepBack,
            "number of its last tokens that a sequence of a hybrid can give "
            "up without a snapshot; it keeps as many more copies of its "
            "fixed state; default is 0",
            0, kMostStepBack);
}

static void addOutputs(CLI::App &app, Arguments &arguments) {
  addNumber(
      &app, "--progress", arguments.progress,
      "open file descriptor that gets a line of JSON for each stage and "
      "percent, {\"stage\", \"done\", \"total\"}, in place of the bar and "
      "the summary on standard error",
      1, INT32_MAX)
      ->type_name("FD");
  CLI::Option *output = app.get_option("-o");
  CLI::Option *verify =
      app.add_flag("--verify", arguments.verify,
                   "compare every kernel with the reference before the file "
                   "gets its final name")
          ->needs(output);
  app.add_option("--runner", arguments.runner,
                 "command that runs the target's qwen-run on this machine, "
                 "such as 'qemu-aarch64-static -cpu max "
                 "build/aarch64/bin/qwen-run'")
      ->needs(verify);
  app.add_option("--emit", arguments.emit,
                 "print a stage to standard output instead of writing a "
                 "file")
      ->check(CLI::IsMember(stageNames()))
      ->excludes(output);
}

static void addFlags(CLI::App &app, Arguments &arguments) {
  app.set_version_flag("--version",
                       std::string("qwen-opt ") + projectVersion());
  app.add_option(
      "CHECKPOINT", arguments.checkpoint,
      "a Hugging Face folder (config.json, *.safetensors, ...) or a GGUF file; "
      "of a split one, the first file");
  app.add_option("-o", arguments.output, "file to write")->type_name("FILE");
  app.add_option("--lora", arguments.adapters,
                 "merge an adapter (LoRA) into the checkpoint, times SCALE, "
                 "before anything else: a folder of PEFT or MLX, or a GGUF "
                 "file; repeatable");
  addPruning(app, arguments.calibrate);
  addTargets(app, arguments);
  addFormats(app, arguments);
  addReplacements(app, arguments);
  addLimits(app, arguments.options);
  setCompileForms(app);
  addOutputs(app, arguments);
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

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

static void compile(Arguments &arguments) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string &text : arguments.adapters)
    arguments.options.adapters.push_back(parseAdapter(text));
  if (arguments.weights == kKeepFormat)
    arguments.options.weights = KeepFormats();
  else if (!arguments.weights.empty())
    arguments.options.weights = *parseWeightFormat(arguments.weights);
  const auto *rotate = llvm::find(kRotateNames, arguments.rotate);
  if (rotate != std::end(kRotateNames))
    arguments.options.rotate =
        static_cast<Rotate>(rotate - std::begin(kRotateNames));
  arguments.options.kv = parseKvFormat(arguments.kv);
  arguments.options.chatTemplate = arguments.chatTemplate;
  uint64_t adapterBytes = 0;
  for (const AdapterOption &adapter : arguments.options.adapters)
    adapterBytes += weightFileBytes(adapter.path);
  checkLimits(arguments.checkpoint, adapterBytes);

  CompileHooks &hooks = arguments.hooks;
  hooks.warn = printWarning;
  hooks.checkTemplate = [](const std::string &text) {
    ChatTemplate::parse(text);
  };
  if (!arguments.emit.empty()) {
    llvm::outs() << emit(arguments.checkpoint,
                         *parseEmittedStage(arguments.emit), arguments.options,
                         hooks);
    return;
  }
  // A bar of "reading" would stand in the way of warnings.
  if (ProgressBar::isReported())
    ProgressBar("reading").update(0, 1);
  // The file comes first, so that an error about it comes at once.
  TemporaryFile output(arguments.output);
  addCalibrationHooks(arguments.calibrate, arguments.options.quantizer,
                      arguments.checkpoint, arguments.output, hooks);
  std::optional<ProgressBar> bar;
  hooks.progress = [&](uint64_t done, uint64_t total) {
    if (!bar)
      bar.emplace("packing");
    bar->update(done, total);
  };
  std::vector<std::string> verified;
  hooks.check = [&](const std::string &file, llvm::ArrayRef<TargetCode> targets,
                    const ArtifactInput &input) {
    if (arguments.verify)
      verified = verifyArtifact(file, arguments.runner, targets, input);
  };
  const CompileSummary summary =
      compileModel(arguments.checkpoint, output, arguments.options, hooks);
  bar.reset();
  if (hooks.quantize)
    removeSavedCalibration(calibrationFolder(arguments.output));
  if (ProgressBar::isReported())
    return;
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  printSummary(arguments.output, summary, verified, seconds.count());
}

/// What the command line lacks to compile. Throws UsageError.
static void checkArguments(CLI::App &app, Arguments &arguments) {
  if (app.get_option("CHECKPOINT")->empty())
    throw UsageError(app, "CHECKPOINT is missing");
  if (app.get_option("--emit")->empty() && app.get_option("-o")->empty())
    throw UsageError(app, "-o or --emit is missing");
  if (arguments.progress >= 0 && fcntl(arguments.progress, F_GETFD) < 0)
    throw UsageError(app, "--progress has " +
                              std::to_string(arguments.progress) +
                              " when an open file descriptor is needed");
  ProgressBar::report(arguments.progress);
  arguments.options.quantizer =
      chooseQuantizer(app, arguments.calibrate, arguments.quantizer);
  applyPruning(app, arguments.calibrate, arguments.checkpoint,
               arguments.options, arguments.hooks);
}

/// "qwen-opt report", the program and the command that runs.
static std::string nameOf(const CLI::App &app) {
  std::string name = app.get_name();
  for (const CLI::App *command : app.get_subcommands())
    name += " " + command->get_name();
  return name;
}

int qwen::compileMain(int argc, char **argv) {
  Arguments arguments;
  CLI::App app("Compiles models for qwen-run: a checkpoint becomes one file.\n"
               "qwen-opt FILE.mlir runs passes (see qwen-opt - --help).",
               "qwen-opt");
  addFlags(app, arguments);
#define QWEN_OPT_COMMAND(Name, Text) add##Name(app);
#include "Commands.def"
  const auto write = [](const std::string &text) { llvm::outs() << text; };
  addCompletionCommand(app, write);
  addManualCommand(app, write);
  const auto fail = [&](const std::exception &error, const char *message) {
    llvm::errs() << nameOf(app) << ": " << message << '\n';
    return exitCodeOf(error);
  };
  try {
    parseCommandLine(app, argc, argv);
    if (!app.get_subcommands().empty())
      return 0;
    if (arguments.list) {
      listTargets(arguments.json);
      return 0;
    }
    checkArguments(app, arguments);
    compile(arguments);
  } catch (const CLI::Success &request) {
    return app.exit(request);
  } catch (const std::bad_alloc &error) {
    return fail(error, "out of memory");
  } catch (const std::exception &error) {
    return fail(error, error.what());
  }
  return 0;
}
