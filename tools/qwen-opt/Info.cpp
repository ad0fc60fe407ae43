//===- Info.cpp - The info command ----------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "InfoText.h"
#include "Limits.h"
#include "MeasuredLoss.h"
#include "MemorySpeed.h"
#include "engine/CpuCount.h"
#include "jinja/ChatTemplate.h"
#include "text/Tokenizer.h"

#include "qwen/Compiler/Inspect.h"
#include "qwen/Support/Error.h"

#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using nlohmann::ordered_json;

namespace {
struct InfoOptions {
  std::string checkpoint;
  std::optional<double> gigabytes;
  bool json = false;
};
} // namespace

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

static ordered_json describeTokenizer(const TokenizerImport &tokenizer) {
  const Tokenizer table = Tokenizer::fromBlob(tokenizer.blob);
  const auto token = [&](std::optional<int32_t> id) -> ordered_json {
    if (!id)
      return nullptr;
    return {{"id", *id}, {"text", table.tokenBytes(*id)}};
  };
  return {{"tokens", table.vocabSize()},
          {"added_tokens", table.addedTokens().size()},
          {"bos_token", token(table.bosToken())},
          {"eos_token", token(table.eosToken())},
          {"pad_token", token(table.padToken())},
          {"appended_token", token(table.appendedToken())}};
}

static ordered_json describeTemplate(const TokenizerImport &tokenizer) {
  ordered_json result = {{"file", tokenizer.chatTemplateFile.string()},
                         {"bytes", tokenizer.chatTemplate.size()},
                         {"error", nullptr}};
  try {
    ChatTemplate::parse(tokenizer.chatTemplate);
  } catch (const Error &error) {
    result["error"] = error.what();
  }
  return result;
}

static ordered_json describeModel(const CheckpointFacts &facts) {
  const ModelConfig &model = facts.model;
  ordered_json result = {{"name", facts.name},
                         {"architecture", infoOf(model.architecture).name},
                         {"parameters", facts.parameters}};
  for (const Fact<ModelShape> &fact : kShapeFacts)
    std::visit([&](auto member) { result["shape"][fact.key] = model.*member; },
               fact.member);
  result["output"] = outputKindName(model.output.kind);
  result["context"] = facts.context;
  result["rope_scaling"] = nullptr;
  if (model.yarn)
    result["rope_scaling"] = {{"type", "yarn"},
                              {"factor", model.yarn->factor},
                              {"positions", model.yarn->positions}};
  result["stored"] = ordered_json::array();
  for (const StoredForm &form : facts.forms)
    result["stored"].push_back({{"form", form.form},
                                {"tensors", form.tensors},
                                {"bytes", form.bytes}});
  return result;
}

/// The most tokens a second of a sequence of `positions` when a token reads
/// `bytes` of weights.
static double ceiling(const CompileSummary &compiled, uint64_t bytes,
                      int64_t positions, double speed) {
  return speed / (static_cast<double>(bytes) +
                  static_cast<double>(compiled.positionBytes) *
                      static_cast<double>(positions) +
                  2 * static_cast<double>(compiled.sequenceBytes));
}

static ordered_json describeSizes(const CheckpointFacts &facts, double speed) {
  const CompileSummary &compiled = facts.compiled;
  const auto speeds = [&](ordered_json &row, uint64_t bytes) {
    row["token_bytes"] = bytes;
    row["tokens_per_second"] = ceiling(compiled, bytes, 1, speed);
    row["tokens_per_second_at_context"] =
        ceiling(compiled, bytes, facts.context, speed);
  };
  ordered_json own = {{"formats", ordered_json::array()},
                      {"weight_bytes", compiled.weightBytes}};
  for (const FormatSummary &format : compiled.formats)
    own["formats"].push_back({{"format", format.name},
                              {"tensors", format.tensors},
                              {"bytes", format.bytes}});
  speeds(own, facts.tokenBytes);
  own["arena_bytes"] = compiled.arenaBytes;
  own["kv_format"] = compiled.kv;
  own["kv_bytes_a_token"] = compiled.positionBytes;
  own["state_bytes_a_sequence"] = compiled.sequenceBytes;
  own["step_back_bytes_a_sequence"] = compiled.stepBackBytes;
  ordered_json all = ordered_json::array();
  for (const FormatSize &size : facts.formats) {
    ordered_json row = {{"format", size.name}, {"weight_bytes", size.bytes}};
    speeds(row, size.tokenBytes);
    const std::optional<MeasuredLoss> loss = measuredLossOf(size.name);
    row["measured_kl"] = loss ? ordered_json(loss->plain) : nullptr;
    all.push_back(std::move(row));
  }
  return {{"compiled", std::move(own)}, {"formats", std::move(all)}};
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

static void info(const InfoOptions &options) {
  checkLimits(options.checkpoint, 0);
  ordered_json warnings = ordered_json::array();
  CompileHooks hooks;
  hooks.warn = [&](const std::string &warning) { warnings.push_back(warning); };
  const CheckpointFacts facts =
      inspectCheckpoint(options.checkpoint, {}, hooks);
  ordered_json result = describeModel(facts);
  result["tokenizer"] = nullptr;
  result["chat_template"] = nullptr;
  if (facts.tokenizer) {
    result["tokenizer"] = describeTokenizer(*facts.tokenizer);
    if (!facts.tokenizer->chatTemplate.empty())
      result["chat_template"] = describeTemplate(*facts.tokenizer);
  }
  const int threads = defaultThreads();
  const double speed =
      options.gigabytes ? *options.gigabytes * 1e9 : memorySpeed(threads);
  result.update(describeSizes(facts, speed));
  result["machine"] = {
      {"threads", options.gigabytes ? ordered_json() : ordered_json(threads)},
      {"bytes_per_second", speed}};
  result["notes"] = facts.compiled.notes;
  result["unused"] = facts.compiled.unusedTensors;
  result["warnings"] = warnings;
  if (options.json) {
    llvm::outs() << result.dump(1, ' ', false,
                                ordered_json::error_handler_t::replace)
                 << '\n';
    return;
  }
  printInfo(result, llvm::outs());
}

void qwen::addInfo(const Command &program) {
  const auto options = std::make_shared<InfoOptions>();
  const Command sub = program.addCommand(
      "info",
      "Describe a checkpoint before it is compiled: the model, its size "
      "in each format, and how fast this machine can read it");
  sub.addText("CHECKPOINT", options->checkpoint,
              "A Hugging Face folder or a GGUF file")
      .required();
  sub.addNumber(
      "--gbps", options->gigabytes,
      "Memory bandwidth in GB/s (10^9 bytes); default is that of this "
      "machine, measured",
      0.001, 1e6);
  sub.addFlag("--json", options->json, "Print JSON");
  sub.onRun([options] { info(*options); });
}
