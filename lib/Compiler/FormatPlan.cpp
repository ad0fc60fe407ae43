//===- FormatPlan.cpp - A format and a quantizer for each matrix ----------===//

#include "qwen/Compiler/FormatPlan.h"

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Pattern.h"
#include "qwen/Support/Text.h"
#include "qwen/Transforms/Passes.h"

using namespace qwen;
using json = nlohmann::ordered_json;

WeightFormat FormatPlan::formatOf(WeightOp matrix) const {
  return formats.find(matrix.getSymName())->second;
}

std::optional<Quantizer> FormatPlan::quantizerOf(WeightOp matrix) const {
  const auto found = quantizers.find(matrix.getSymName());
  return found == quantizers.end() ? std::nullopt
                                   : std::optional(found->second);
}

std::vector<WeightOp> qwen::plannedMatrices(mlir::ModuleOp module) {
  std::vector<WeightOp> matrices;
  for (WeightOp weight : module.getOps<WeightOp>())
    if (weight.isMatrix() && !weight.getExact())
      matrices.push_back(weight);
  return matrices;
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

namespace {
/// The format of the matrices with these names.
struct Rule {
  Pattern names;
  /// None keeps the format of the checkpoint.
  std::optional<WeightFormat> format;
  /// Begins errors about it.
  ErrorText text;
  /// Whether it matched a matrix.
  bool isUsed = false;
};
} // namespace

static Rule parseRule(const std::string &text) {
  const ErrorText owner =
      part::subject("--tensor-weights") + " '" + printable(text) + "'";
  if (!llvm::StringRef(text).contains('='))
    throw Error(owner + " has no format when 'REGEX=FORMAT' is needed");
  const auto [regex, name] = llvm::StringRef(text).rsplit('=');
  const auto format = parseWeightFormat(name);
  if (!format && name != llvm::StringRef(kKeepFormat))
    throw Error(owner + " names format '" + printable(name) + "' when " +
                std::string(kKeepFormat) + ", " + weightFormatList() +
                " is needed");
  return {Pattern(regex, owner), format, owner};
}

MatrixFormats qwen::formatsByRules(mlir::ModuleOp module,
                                   const WeightChoice &choice,
                                   const std::vector<std::string> &texts) {
  std::vector<Rule> rules;
  rules.reserve(texts.size());
  for (const std::string &text : texts)
    rules.push_back(parseRule(text));
  MatrixFormats formats;
  const auto *chosen = std::get_if<WeightFormat>(&choice);
  const auto *plan = std::get_if<WeightPlan>(&choice);
  const auto *keeps = std::get_if<KeepIntegers>(&choice);
  const std::optional<PlanRules> planned =
      plan ? std::optional<PlanRules>(std::in_place, *plan, module)
           : std::nullopt;
  for (WeightOp weight : module.getOps<WeightOp>()) {
    if (!weight.isMatrix())
      continue;
    WeightFormat format = planned  ? planned->of(weight).format
                          : chosen ? *chosen
                          : keeps && !weight.getSource().getIntegers()
                              ? keeps->others
                              : weight.getKeptFormat();
    for (Rule &rule : rules)
      if (rule.names.matchesPart(weight.getSymName())) {
        format = rule.format.value_or(weight.getKeptFormat());
        rule.isUsed = true;
      }
    if (!weight.getExact())
      formats.emplace(weight.getSymName(), format);
  }
  for (const Rule &rule : rules)
    if (!rule.isUsed)
      throw Error(rule.text +
                  " matches no matrix of the checkpoint; qwen-opt CHECKPOINT "
                  "--emit=graph prints their names");
  return formats;
}

//===----------------------------------------------------------------------===//
// Plan files
//===----------------------------------------------------------------------===//

static constexpr int64_t kVersion = 1;
/// In place of a quantizer: the integers are the checkpoint's.
static constexpr std::string_view kKeptIntegers = "keep";

/// The facts that tell models apart.
static json factsOf(const ModelConfig &model) {
  json facts = {{"architecture", infoOf(model.architecture).name}};
  for (const Fact<ModelShape> &fact : kShapeFacts)
    fact.visitIn(model, [&](auto value) { facts[fact.key] = value; });
  if (const std::optional<ExpertsShape> &experts = model.experts)
    for (const Fact<ExpertsShape> &fact : kExpertsFacts)
      fact.visitIn(*experts,
                   [&](auto value) { facts["experts"][fact.key] = value; });
  return facts;
}

/// Throws Error unless `found` has the facts of the model, `needed`.
static void checkFacts(const JsonValue &found, const json &needed) {
  for (const auto &[key, fact] : needed.items()) {
    const JsonValue value = found.at(key.c_str());
    if (fact.is_object())
      checkFacts(value, fact);
    else if (!value.is(nlohmann::json(fact)))
      value.fail(fact.dump() + ", of this model,");
  }
}

static std::string quantizerList() {
  std::string list(kKeptIntegers);
  for (Quantizer quantizer : kQuantizers)
    list += ", " + std::string(infoOf(quantizer).name);
  return list;
}

/// Reads the plan of a matrix.
static void readMatrix(const JsonValue &value, WeightOp matrix,
                       FormatPlan &plan) {
  const std::string name = matrix.getSymName().str();
  const JsonValue text = value.at("format");
  const auto format = parseWeightFormat(text.string());
  if (!format)
    text.fail("one of " + weightFormatList());
  plan.formats.emplace(name, *format);
  const auto quantizer = value.find("quantizer");
  if (!isQuantized(*format) && quantizer)
    quantizer->error("is of a matrix in " + text.string() +
                     ", a format of floats");
  if (!isQuantized(*format))
    return;
  const std::string &method = value.at("quantizer").string();
  if (method == kKeptIntegers)
    return;
  const auto parsed = parseQuantizer(method);
  if (!parsed)
    quantizer->fail("one of " + quantizerList());
  plan.quantizers.emplace(name, *parsed);
}

static KvFormat readKvFormat(const JsonValue &value) {
  const auto format = parseKvFormat(value.string());
  if (!format)
    value.fail(kvFormatList());
  return *format;
}

/// Reads the formats of keys and values, of all layers and of single ones.
static void readKv(const JsonValue &root, mlir::ModuleOp module,
                   FormatPlan &plan) {
  plan.kv = readKvFormat(root.at("kv"));
  const auto layers = root.find("kv_layers");
  if (!layers)
    return;
  module.walk([&](ForwardOp op) {
    const std::optional<CacheUse> use = op.getCacheUse();
    if (!use || use->kind != CacheKind::Paged)
      return;
    if (const auto format = layers->find(std::to_string(use->layer).c_str()))
      plan.kvLayers[use->layer] = readKvFormat(*format);
  });
}

FormatPlan qwen::readPlan(const std::filesystem::path &file,
                          const ModelConfig &model, mlir::ModuleOp module) try {
  const std::optional<nlohmann::json> parsed = readJsonObject(file);
  if (!parsed)
    throw Error(part::file(file.string()) + " does not exist: " +
                part::needed("a plan, which --save-plan writes,") +
                " is needed");
  JsonReads reads;
  const JsonSource source = JsonSource::ofFile(file.string(), &reads);
  const JsonValue root(*parsed, source);
  if (root.at("version").integer(1, INT32_MAX) != kVersion)
    root.at("version").fail(std::to_string(kVersion));
  checkFacts(root.at("model"), factsOf(model));
  FormatPlan plan;
  readKv(root, module, plan);
  const JsonValue matrices = root.at("matrices");
  for (WeightOp matrix : plannedMatrices(module))
    readMatrix(matrices.at(matrix.getSymName().str().c_str()), matrix, plan);
  if (const auto unread = root.unread(); !unread.empty())
    throw Error(
        source.owner + " has " + part::found(quote(unread.front().first)) +
        ", which is no matrix or layer of the model whose format can be "
        "chosen, and no key of a plan");
  return plan;
} catch (...) {
  throwInputError();
}

std::string qwen::planText(const FormatPlan &plan, const ModelConfig &model) {
  json text = {{"version", kVersion},
               {"model", factsOf(model)},
               {"kv", kvFormatName(plan.kv)}};
  for (const auto &[layer, format] : plan.kvLayers)
    text["kv_layers"][std::to_string(layer)] = kvFormatName(format);
  json &matrices = text["matrices"] = json::object();
  for (const auto &[name, format] : plan.formats) {
    json &matrix = matrices[name] = {{"format", weightFormatName(format)}};
    const auto quantizer = plan.quantizers.find(name);
    if (isQuantized(format))
      matrix["quantizer"] = quantizer == plan.quantizers.end()
                                ? kKeptIntegers
                                : infoOf(quantizer->second).name;
  }
  return text.dump(2) + "\n";
}
