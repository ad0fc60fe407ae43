//===- ModuleBuilder.cpp - What the programs of a module share ------------===//

#include "ModuleBuilder.h"

#include "qwen/Import/Models/Import.h"

using namespace mlir;
using namespace qwen;

ModuleBuilder::ModuleBuilder(const Checkpoint &checkpoint, MLIRContext &context)
    : from(checkpoint), module(ModuleOp::create(
                            NameLoc::get(StringAttr::get(&context, "model")))),
      weights(&context) {
  module.get()->setAttr(kStageAttr,
                        weights.getStringAttr(stringifyStage(Stage::Graph)));
}

void ModuleBuilder::add(const std::string &name, RankedTensorType type,
                        SourceAttrInterface source, bool isExact) {
  if (last)
    weights.setInsertionPointAfter(last);
  else
    weights.setInsertionPointToStart(module->getBody());
  last = WeightOp::create(weights, at(name), name, type, source, isExact,
                          FormatAttr(), FlatSymbolRefAttr());
}

FlatSymbolRefAttr ModuleBuilder::weight(const std::string &name,
                                        llvm::ArrayRef<int64_t> shape,
                                        const WeightTraits &traits) {
  MLIRContext *context = weights.getContext();
  const auto symbol = FlatSymbolRefAttr::get(context, name);
  if (!symbols.insert(name).second)
    return symbol;
  const WeightSources::Entry &entry = from.weight(name, {shape.vec()});
  used.insert(entry.tensors.begin(), entry.tensors.end());
  const WeightFormat kept = entry.source->keptFormat();
  const Type element = kept == WeightFormat::BF16 ? Type(weights.getBF16Type())
                                                  : weights.getF32Type();
  const WeightShape &stored = entry.source->shape();
  // Experts have their outputs one after another.
  const llvm::SmallVector<int64_t> type =
      traits.isFlat ? llvm::SmallVector<int64_t>{stored.values()}
      : shape.size() == 3
          ? llvm::SmallVector<int64_t>{stored.outputs(), stored.k()}
          : llvm::SmallVector<int64_t>(shape);
  const auto format =
      isQuantized(kept) ? FormatAttr::get(context, kept) : FormatAttr();
  const bool hasIntegers = entry.source->hasIntegers();
  add(name, RankedTensorType::get(type, element),
      SourceAttr::get(context, weights.getStringAttr(name),
                      hasIntegers ? format : FormatAttr(),
                      hasIntegers ? FormatAttr() : format),
      traits.isExact);
  return symbol;
}

FlatSymbolRefAttr ModuleBuilder::vector(const std::string &name, int64_t size,
                                        SourceAttrInterface source) {
  if (symbols.insert(name).second)
    add(name, RankedTensorType::get(size, weights.getF32Type()), source,
        /*isExact=*/false);
  return FlatSymbolRefAttr::get(weights.getContext(), name);
}

/// The facts of `object` in a table.
template <typename Struct>
static llvm::SmallVector<NamedAttribute>
factsOf(std::span<const Fact<Struct>> table, const Struct &object,
        Builder &builder) {
  llvm::SmallVector<NamedAttribute> facts;
  for (const Fact<Struct> &fact : table)
    fact.visitIn(object, [&](auto value) {
      facts.push_back(
          builder.getNamedAttr(fact.key, attributeOf(builder, value)));
    });
  return facts;
}

/// The manifest's facts of the model of a program.
static DictionaryAttr factsOf(const ModelConfig &config, Builder &builder) {
  const std::string_view architecture = infoOf(config.architecture).name;
  llvm::SmallVector<NamedAttribute> facts =
      factsOf<ModelShape>(kShapeFacts, config, builder);
  const auto add = [&](const char *key, Attribute value) {
    facts.push_back(builder.getNamedAttr(key, value));
  };
  add("architecture", builder.getStringAttr(StringRef(architecture)));
  add("max_context", attributeOf(builder, config.maxPosition));
  if (const auto &tokens = config.output.tokens; !tokens.empty())
    add("tokens", builder.getDenseI64ArrayAttr(llvm::SmallVector<int64_t>(
                      tokens.begin(), tokens.end())));
  visitModelParts([&]<typename Part>(const ModelPart<Part> &part) {
    if (const std::optional<Part> &has = config.*part.member)
      add(part.key,
          builder.getDictionaryAttr(factsOf<Part>(part.facts, *has, builder)));
  });
  return builder.getDictionaryAttr(facts);
}

func::FuncOp ModuleBuilder::add(const ModelProgram &program,
                                const ModelConfig &config, FunctionType type) {
  auto builder = OpBuilder::atBlockEnd(module->getBody());
  auto function =
      func::FuncOp::create(builder, at(program.name), program.name, type);
  function->setAttr(kModelAttr, factsOf(config, builder));
  setLimit(function, nameOf(tokensOfCall(function)), kDefaultMaxTokens);
  setLimit(function, kWantedName, kDefaultMaxRows);
  function.addEntryBlock();
  return function;
}

int64_t ModuleBuilder::addCaches(int64_t count) {
  const int64_t first = layers;
  layers += count;
  return first;
}
