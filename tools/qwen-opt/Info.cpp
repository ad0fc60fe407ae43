//===- Info.cpp - The info command ----------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "Limits.h"
#include "MemorySpeed.h"
#include "PrintSummary.h"
#include "engine/CpuCount.h"
#include "jinja/ChatTemplate.h"
#include "text/Tokenizer.h"

#include "qwen/Compiler/Inspect.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
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
  own["kv_format"] = kvFormatName(compiled.kv);
  own["kv_bytes_a_token"] = compiled.positionBytes;
  own["state_bytes_a_sequence"] = compiled.sequenceBytes;
  ordered_json all = ordered_json::array();
  for (const FormatSize &size : facts.formats) {
    ordered_json row = {{"format", weightFormatName(size.format)},
                        {"weight_bytes", size.bytes}};
    speeds(row, size.tokenBytes);
    all.push_back(std::move(row));
  }
  return {{"compiled", std::move(own)}, {"formats", std::move(all)}};
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string bytesText(const ordered_json &bytes) {
  return withUnit(bytes.get<uint64_t>());
}

static std::string tokenText(const ordered_json &token) {
  if (token.is_null())
    return "none";
  return quote(token["text"].get<std::string>()) + " (" + token["id"].dump() +
         ")";
}

static void printModel(const ordered_json &all, llvm::raw_ostream &out) {
  const ordered_json &shape = all["shape"];
  const auto size = [&](const char *key) { return shape[key].dump(); };
  out << "model       " << all["name"].get<std::string>() << ", "
      << all["architecture"].get<std::string>() << "\n"
      << llvm::formatv("parameters  {0:n}\n", all["parameters"].get<int64_t>())
      << "shape       " << size("layers") << " layers of hidden size "
      << size("hidden_size") << ", ffn " << size("intermediate_size") << "; "
      << size("heads") << " heads, " << size("kv_heads") << " kv, of "
      << size("head_dim") << "; vocabulary " << size("vocab_size") << ", "
      << (shape["tied"].get<bool>() ? "tied" : "untied") << "\n"
      << "output      " << all["output"].get<std::string>() << "\n"
      << "context     " << all["context"].dump() << " positions";
  if (const ordered_json &scaling = all["rope_scaling"]; !scaling.is_null())
    out << ", by YaRN: " << scaling["factor"].dump() << " times "
        << scaling["positions"].dump();
  out << "\n";
  for (const ordered_json &form : all["stored"])
    out << "stored      " << form["form"].get<std::string>() << ": "
        << form["tensors"].dump() << " tensors, " << bytesText(form["bytes"])
        << "\n";
  if (const ordered_json &tokenizer = all["tokenizer"]; tokenizer.is_null())
    out << "tokenizer   none\n";
  else
    out << "tokenizer   " << tokenizer["tokens"].dump() << " tokens; bos "
        << tokenText(tokenizer["bos_token"]) << ", eos "
        << tokenText(tokenizer["eos_token"]) << ", pad "
        << tokenText(tokenizer["pad_token"]) << "\n";
  if (const ordered_json &chat = all["chat_template"]; chat.is_null())
    out << "template    none\n";
  else
    out << "template    " << chat["bytes"].dump() << " bytes, in "
        << printable(chat["file"].get<std::string>())
        << (chat["error"].is_null()
                ? ""
                : "; not supported: " + chat["error"].get<std::string>())
        << "\n";
}

static void printSizes(const ordered_json &all, llvm::raw_ostream &out) {
  const ordered_json &own = all["compiled"];
  out << "compiled    by default ";
  llvm::interleaveComma(own["formats"], out, [&](const ordered_json &format) {
    out << format["tensors"].dump() << " tensors as "
        << format["format"].get<std::string>() << " ("
        << bytesText(format["bytes"]) << ")";
  });
  out << "\nkv cache    " << own["kv_format"].get<std::string>() << ", "
      << own["kv_bytes_a_token"].dump() << " bytes a token, "
      << withUnit(own["kv_bytes_a_token"].get<uint64_t>() *
                  all["context"].get<uint64_t>())
      << " for the context\n";
  if (own["state_bytes_a_sequence"] != 0)
    out << "state       " << own["state_bytes_a_sequence"].dump()
        << " bytes a sequence\n";
  out << "arena       " << bytesText(own["arena_bytes"]) << "\n";
  const ordered_json &machine = all["machine"];
  out << llvm::formatv("memory      {0:f1} GB/s",
                       machine["bytes_per_second"].get<double>() * 1e-9);
  if (!machine["threads"].is_null())
    out << ", measured with " << machine["threads"].dump() << " threads";
  out << "\n\n"
      << llvm::formatv("{0,-11} {1,12} {2,12} {3,25}\n", "--weights", "bytes",
                       "a token", "tokens/s at most");
  out << llvm::formatv("{0,-11} {1,12} {2,12} {3,12} {4,12}\n", "", "", "reads",
                       "at first", "full context");
  const auto print = [&](const std::string &name, const ordered_json &row) {
    out << llvm::formatv("{0,-11} {1,12} {2,12} {3,12:f1} {4,12:f1}\n", name,
                         bytesText(row["weight_bytes"]),
                         bytesText(row["token_bytes"]),
                         row["tokens_per_second"].get<double>(),
                         row["tokens_per_second_at_context"].get<double>());
  };
  print("(default)", own);
  for (const ordered_json &row : all["formats"])
    print(row["format"].get<std::string>(), row);
}

static void printNotes(const ordered_json &all, llvm::raw_ostream &out) {
  for (const char *kind : {"notes", "warnings"})
    for (const ordered_json &line : all[kind])
      out << (kind == std::string_view("notes") ? "note        "
                                                : "warning     ")
          << line.get<std::string>() << "\n";
  for (const auto &[kind, names] : all["unused"].items())
    out << "note        " << names.size() << " tensors are not used: " << kind
        << "\n";
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
  printModel(result, llvm::outs());
  printNotes(result, llvm::outs());
  printSizes(result, llvm::outs());
}

void qwen::addInfo(CLI::App &app) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App *sub = app.add_subcommand(
      "info",
      "Describe a checkpoint before it is compiled: the model, its size "
      "in each format, and how fast this machine can read it");
  sub->add_option("CHECKPOINT", options->checkpoint,
                  "a Hugging Face folder or a GGUF file")
      ->required();
  addNumber(sub, "--gbps", options->gigabytes,
            "memory bandwidth in GB/s (10^9 bytes); default is that of this "
            "machine, measured",
            0.001, 1e6);
  sub->add_flag("--json", options->json, "print JSON");
  sub->callback([options] { info(*options); });
}
