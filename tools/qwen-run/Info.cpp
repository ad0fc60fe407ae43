//===- Info.cpp - What is in a file ---------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "CompilerProgram.h"
#include "ExitCodes.h"
#include "JsonOutput.h"
#include "Output.h"
#include "artifact/Artifact.h"
#include "cache/ModelSource.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Json.h"

#include <sstream>

using namespace qwen;
using namespace qwen::run;

namespace {
struct InfoCommand {
  std::string model;
  bool json = false;
  bool check = false;
};
} // namespace

/// "12.3 MiB (12345678 bytes)".
static std::string bytesText(uint64_t bytes) {
  char text[64];
  snprintf(text, sizeof(text), "%.1f MiB (%llu bytes)",
           static_cast<double>(bytes) / (1024 * 1024),
           static_cast<unsigned long long>(bytes));
  return text;
}

/// The target that the other commands run here, or null.
static const TargetInfo *targetOfThisMachine(const Manifest &manifest) {
  return manifest.bestTarget(hostArch(), hostFeatures());
}

/// Whether this machine runs a target, and the features that it lacks.
static std::string verdict(const TargetInfo &target, bool chosen) {
  if (target.runsOn(hostArch(), hostFeatures()))
    return chosen ? "runs here, and is chosen" : "runs here";
  if (target.arch != hostArch())
    return "does not run here";
  return "does not run here, which lacks " +
         toString(target.features - hostFeatures());
}

static void printJson(const Artifact &artifact,
                      std::optional<uint64_t> checked) {
  const ArtifactHeader &header = artifact.header();
  std::vector<std::string> here;
  for (const TargetInfo &target : artifact.manifest().targets)
    if (target.runsOn(hostArch(), hostFeatures()))
      here.push_back(target.name);
  const TargetInfo *chosen = targetOfThisMachine(artifact.manifest());
  JsonMember chosenHere = {"chosen_here", JsonText{"null"}};
  if (chosen)
    chosenHere.second = chosen->name;
  JsonText result = jsonObject(
      {{"file", artifact.path()},
       {"bytes",
        jsonObject({{"file", artifact.fileSize()},
                    {"token_weights", artifact.manifest().tokenWeightBytes()},
                    {"draft_head", artifact.manifest().draftHeadBytes()},
                    {"code", header.code.size},
                    {"manifest", header.manifest.size},
                    {"tokenizer", header.tokenizer.size},
                    {"chat_template", header.chatTemplate.size},
                    {"weights", header.weights.size}})},
       {"format_version", int64_t{header.formatVersion}},
       {"kernel_abi_version", int64_t{header.kernelAbiVersion}},
       {"runs_here", jsonArray(here)},
       chosenHere});
  if (checked)
    result = joinObjects(result, jsonObject({{"verified_bytes", *checked}}));
  // Adding a key to an ordered object searches all its keys, and dump recurses
  // once per level of nesting.
  checkJson(artifact.manifestText(), artifact.path() + ": its manifest",
            {.depth = 16, .keys = 64});
  writeJson(joinObjects(result, {std::string(artifact.manifestText())}), 2);
}

/// A program, the sizes of its model, and its limits.
static void print(std::ostream &out, const ProgramInfo &program) {
  const ProgramModel &model = program.model;
  out << "program    " << program.name << ", " << model.architecture << "\n"
      << "layers     " << model.layers << " of hidden size " << model.hiddenSize
      << ", ffn " << model.intermediateSize << "\n"
      << "heads      " << model.heads << ", kv " << model.kvHeads << ", of "
      << model.headDim << "\n"
      << "vocabulary " << model.vocabSize << " rows, "
      << (model.tied ? "tied" : "untied") << "\n";
  if (!model.tokens.empty())
    out << "drafts     " << model.tokens.size() << " tokens\n";
  out << "arena      " << bytesText(static_cast<uint64_t>(program.arenaBytes))
      << " for calls of " << program.limits.tokens << " tokens and "
      << program.limits.rows << " rows\n";
}

static void printText(const Artifact &artifact,
                      std::optional<uint64_t> checked) {
  const ArtifactHeader &header = artifact.header();
  const Manifest &manifest = artifact.manifest();
  const ModelInfo &model = manifest.model;
  std::ostringstream out;
  out << "model      " << model.name << "\n";
  for (const ProgramInfo &program : manifest.programs)
    print(out, program);
  out << "output     " << outputKindName(model.output.kind) << ", pooling "
      << model.output.pooling << "\n"
      << "context    " << model.context << " positions\n"
      << "weights    " << manifest.weightFormats() << ", "
      << bytesText(header.weights.size) << " in " << manifest.tensors.size()
      << " tensors\n";
  if (const uint64_t bytes = manifest.draftHeadBytes())
    out << "draft head " << bytesText(bytes) << " of the weights\n";
  if (model.experts)
    out << "experts    " << model.experts->active << " of "
        << model.experts->count << " for a token, of width "
        << model.experts->width << ", which reads "
        << bytesText(manifest.tokenWeightBytes()) << " of the weights\n";
  if (manifest.pruning != Pruning())
    out << "pruning    " << manifest.pruning.describe() << "\n";
  if (manifest.quantization != Quantization())
    out << "quantizer  " << manifest.quantization.describe() << "\n";
  out << "kv cache   " << describeKvFormats(manifest.caches) << ", "
      << manifest.kv.tokenBytes << " bytes a token, " << manifest.kv.pageBytes
      << " a page of " << kPageTokens << "\n";
  if (const int64_t bytes = bytesOf(manifest.caches, CacheKind::Fixed)) {
    out << "state      "
        << describeStates(bytes, stepBackBytesOf(manifest.caches));
    if (const int64_t most = manifest.forward().limits.stepBack)
      out << " " << most << " tokens";
    out << "\n";
  }
  out << "code       " << bytesText(header.code.size) << "\n"
      << "tokenizer  "
      << (header.tokenizer.size
              ? std::to_string(model.tokenizerVocab) + " tokens"
              : "no")
      << ", chat template " << (header.chatTemplate.size ? "yes" : "no") << "\n"
      << "file       " << bytesText(artifact.fileSize()) << ", format version "
      << header.formatVersion << ", by " << manifest.compiler << "\n";
  const TargetInfo *chosen = targetOfThisMachine(manifest);
  for (const TargetInfo &target : manifest.targets) {
    out << "target     " << target.name << " (" << archName(target.arch)
        << "; needs " << toString(target.features) << "; "
        << verdict(target, &target == chosen) << ")\n";
    for (const std::string &kernel : target.kernels)
      out << "  " << kernel << "\n";
  }
  if (checked)
    out << "checked    " << bytesText(*checked) << "\n";
  writeOut(out.str());
}

/// Describes a checkpoint, which only the compiler can read.
static void describeCheckpoint(const InfoCommand &command,
                               const std::string &checkpoint) {
  if (command.check)
    throw Error("--check needs a compiled model, and " + checkpoint +
                " is a checkpoint");
  const std::optional<std::string> compiler = findCompiler();
  if (!compiler)
    throw Error(checkpoint + " is a checkpoint, and there is no qwen-opt to "
                             "read it beside qwen-run or in PATH");
  std::vector<std::string> arguments = {"info"};
  if (command.json)
    arguments.emplace_back("--json");
  // A path may begin with "-".
  arguments.insert(arguments.end(), {"--", checkpoint});
  std::string last = "qwen-opt failed";
  const int status = runProgram(
      *compiler, arguments, {{}, [&](std::string_view line) { last = line; }});
  constexpr std::string_view kName = "qwen-opt info: ";
  if (status != 0)
    throw ProgramError(last.substr(last.starts_with(kName) ? kName.size() : 0),
                       status);
}

static void info(const InfoCommand &command) {
  const ModelSource source = findModel(command.model);
  if (!source.isCompiled)
    return describeCheckpoint(command, source.path.string());
  const Artifact artifact(command.model);
  std::optional<uint64_t> checked;
  if (command.check)
    checked = artifact.check();
  (command.json ? printJson : printText)(artifact, checked);
}

void qwen::run::addInfo(const Command &program) {
  const auto command = std::make_shared<InfoCommand>();
  const Command sub = program.addCommand(
      "info", "Describe a compiled model, or a checkpoint by qwen-opt");
  sub.addText("MODEL", command->model,
              "A compiled file, a checkpoint folder, a GGUF file, or a name "
              "in Hugging Face's cache; nothing is compiled")
      .required();
  sub.addFlag("--json", command->json, "Print JSON");
  sub.addFlag("--check", command->check,
              "Read the whole file and compare it with its checksums");
  sub.onRun([command] { info(*command); });
}
