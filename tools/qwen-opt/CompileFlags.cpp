//===- CompileFlags.cpp - The options of the compiler ---------------------===//

#include "CompileFlags.h"

#include "CommandLine.h"
#include "CommandTree.h"
#include "CompileOptions.h"
#include "Prune.h"

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/Text.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

//===----------------------------------------------------------------------===//
// Names of choices
//===----------------------------------------------------------------------===//

static std::vector<std::string> weightFormatNames() {
  std::vector<std::string> names = {std::string(kKeepFormat)};
  for (WeightPlan plan : kWeightPlans)
    names.emplace_back(infoOf(plan).name);
  for (WeightFormat format : kWeightFormats)
    names.emplace_back(weightFormatName(format));
  return names;
}

/// The bits of a weight in each format, and when to choose it. docs/generate.py
/// reads it.
static std::string weightFormatUses() {
  std::string text;
  for (WeightPlan plan : kWeightPlans)
    text += "; " + std::string(infoOf(plan).name) + ": " +
            std::string(infoOf(plan).use);
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

//===----------------------------------------------------------------------===//
// Groups of options
//===----------------------------------------------------------------------===//

static void addTargets(const Command &command, CompileArguments &arguments) {
  std::vector<std::string> names = {"native"};
  for (const NamedTarget &named : namedTargets())
    names.emplace_back(named.name);
  command
      .addText("--target", arguments.options.target,
               "CPU of the code: native, a name (neoverse-n1, znver4, ...) or "
               "features in the syntax of clang's -march; a list a,b,c makes "
               "one file that runs the best target on each machine; "
               "--list-targets names the CPUs")
      .suggest(names);
  const Option list =
      command.addFlag("--list-targets", arguments.list,
                      "Print the named CPUs, their features and their kernels");
  command.addFlag("--json", arguments.json, "Print that list as JSON")
      .needs(list);
}

static void addFormats(const Command &command, CompileArguments &arguments) {
  command
      .addText("--weights", arguments.weights,
               "Format of the matrices; default is keep for a file of "
               "integers, else " +
                   std::string(infoOf(kDefaultPlan).name) +
                   "; keep: the format of each matrix in the checkpoint, or "
                   "the nearest" +
                   weightFormatUses())
      .choices(weightFormatNames());
  command.addTexts(
      "--tensor-weights", arguments.options.tensorWeights,
      "Format of the matrices whose names match a regular expression "
      "(RE2); repeatable, the last match wins; default is --weights for all");
  std::string quantizers;
  for (const std::string &name : quantizerNames())
    quantizers +=
        "; " + name + " " + std::string(infoOf(*parseQuantizer(name)).help);
  command
      .addText(
          "--quantizer", arguments.quantizer,
          "Method that chooses integers that the checkpoint does not have" +
              quantizers)
      .choices(quantizerNames())
      .defaultText("that of a plan, or " +
                   std::string(infoOf(Quantizer::Rounding).name));
  command
      .addText("--plan", arguments.plan,
               "File with the format and the quantizer of each matrix, as "
               "--save-plan writes it, in place of the three options before; "
               "default is none")
      .type(kFileType)
      .excludes(command.option("--weights"))
      .excludes(command.option("--tensor-weights"))
      .excludes(command.option("--quantizer"));
  command
      .addText("--save-plan", arguments.savePlan,
               "Write the formats and quantizers of the compile to a file for "
               "--plan; default is none")
      .type(kFileType)
      .needs(command.option("-o"));
  addCalibration(command, arguments.calibrate);
  command
      .addText("--imatrix", arguments.imatrix,
               "Importance matrix of the model, a GGUF or .dat file that "
               "llama-imatrix wrote, by which the quantizer search weighs "
               "errors of columns; default is none")
      .type(kFileType)
      .excludes(command.option("--calibrate"))
      .excludes(command.option("--prune"));
  addBudget(command, arguments.budget);
  command.addChoice(
      "--rotate", arguments.options.rotate,
      {std::begin(kRotateNames), std::end(kRotateNames)},
      "Fold rotations into the weights, so that no channel of the activations "
      "is much larger than the others; auto does so with gptq and with q8_0");
  command.addFlag(
      "!--no-grids", arguments.options.grids,
      "Quantize matrices of floats anew that were trained for a format "
      "of integers, or dequantized; without it, and without a format, "
      "they keep these integers");
  command
      .addText("--kv", arguments.kv,
               "Format of the KV cache; default is f32 with f32 weights, f16 "
               "with bf16 weights, else q8")
      .choices(kvFormatNames());
}

/// Reads "yarn:FACTOR" or "yarn:FACTOR:POSITIONS".
static RopeScaling parseRopeScaling(const std::string &text) {
  static const std::string kOption = "--rope-scaling";
  const auto [kind, numbers] = llvm::StringRef(text).split(':');
  const auto [factor, positions] = numbers.split(':');
  if (kind != "yarn")
    throw InvalidValue(
        kOption, quote(text) + " is not yarn:FACTOR or yarn:FACTOR:POSITIONS");
  RopeScaling scaling = {parseNumber(kOption, factor.str(), 1.0, 1e6)};
  if (numbers.contains(':'))
    scaling.positions =
        parseNumber<int64_t>(kOption, positions.str(), 1, kMaxModelPosition);
  return scaling;
}

/// Adds what changes the checkpoint before it is compiled.
static void addChanges(const Command &command, CompileArguments &arguments) {
  command.addTexts("--lora", arguments.adapters,
                   "Merge an adapter (LoRA) into the checkpoint, times SCALE, "
                   "before anything else: a folder of PEFT or MLX, or a GGUF "
                   "file; repeatable; default is none");
  addPruning(command, arguments.calibrate);
  command.addTexts("--ignore-tensors", arguments.options.ignoredTensors,
                   "Compile without the tensors that the model does not know "
                   "and whose names in the file match a regular expression "
                   "(RE2); repeatable; default is none: each is an error");
  command.addFlag("!--no-mtp", arguments.options.draftHead,
                  "Leave out the checkpoint's draft head (mtp.* of Qwen3.5, "
                  "Qwen3.6 and Qwen3-Next), which drafts tokens");
  addDraftVocabulary(command, arguments.drafts);
  command
      .addText("--chat-template", arguments.chatTemplate,
               "File with a chat template (Jinja); default is the "
               "checkpoint's")
      .needs(command.option("-o"));
  command
      .addText(
          "--rope-scaling",
          [&arguments](const std::string &text) {
            arguments.options.ropeScaling = parseRopeScaling(text);
          },
          "Make the context FACTOR times as long by YaRN, as rope_scaling of "
          "config.json does, which is the default; POSITIONS are those in "
          "training, by default the checkpoint's maximum")
      .suggest({"yarn:"});
}

static void addLimits(const Command &command, CompileOptions &options) {
  command.addNumber("--context", options.context,
                    "Maximum length of a sequence; default is the checkpoint's "
                    "maximum",
                    1, int64_t{1} << 30);
  command
      .addNumber("--max-tokens", options.maxTokens,
                 "Maximum number of tokens in a call", 1, kMostTokens)
      .defaultText(std::to_string(kDefaultMaxTokens));
  command.addNumber("--max-rows", options.maxRows,
                    "Maximum number of rows of logits in a call, which is the "
                    "number of sequences that decode together; default is " +
                        std::to_string(kDefaultMaxRows) +
                        ", or --max-tokens if that is less",
                    1, kMostTokens);
  command.addNumber("--step-back", options.stepBack,
                    "Number of its last tokens that a sequence can take back "
                    "without a snapshot, which drafts of a hybrid need. For "
                    "each of them, a sequence that has drafts keeps another "
                    "copy of its fixed state; default is " +
                        std::to_string(kDraftStepBack) +
                        " with linear attention, else 0",
                    0, kMostStepBack);
}

static void addOutputs(const Command &command, CompileArguments &arguments) {
  command
      .addNumber(
          "--progress", arguments.progress,
          "Open file descriptor that gets a line of JSON for each stage and "
          "percent, {\"stage\", \"done\", \"total\"}, in place of the bar and "
          "the summary on standard error; default is none",
          1, INT32_MAX)
      .type("FD");
  const Option output = command.option("-o");
  const Option verify =
      command
          .addFlag("--verify", arguments.verify,
                   "Compare every kernel with the reference before the file "
                   "gets its final name")
          .needs(output);
  command
      .addText("--runner", arguments.runner,
               "Command that runs the target's qwen-run on this machine, "
               "such as 'qemu-aarch64-static -cpu max "
               "build/aarch64/bin/qwen-run'; default is the qwen-run beside "
               "this program")
      .needs(verify);
  command
      .addText("--emit", arguments.emit,
               "Print a stage to standard output instead of writing a "
               "file; default is none")
      .choices(stageNames())
      .excludes(output);
}

void qwen::addCompileFlags(const Command &command,
                           CompileArguments &arguments) {
  constexpr char kOutput[] = "Output";
  command.addText(
      "CHECKPOINT", arguments.checkpoint,
      "A Hugging Face folder (config.json, *.safetensors, ...) or a GGUF file; "
      "of a split one, the first file");
  command.group(kOutput);
  command
      .addText("-o", arguments.output,
               "File to write; default is none, for --emit and --list-targets")
      .type(kFileType);
  command.group("Checkpoint");
  addChanges(command, arguments);
  command.group("Target");
  addTargets(command, arguments);
  command.group("Formats");
  addFormats(command, arguments);
  command.group("Limits");
  addLimits(command, arguments.options);
  command.group(kOutput);
  addOutputs(command, arguments);
  setCompileForms(command);
}
