//===- GraphBuilder.cpp - From a checkpoint to the graph ------------------===//

#include "qwen/Import/Models/Import.h"

#include "UnusedTensors.h"

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/InputError.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;
using namespace qwen;

namespace {
/// What is special about a weight.
struct WeightTraits {
  bool isExact = false;
  /// Whether the op reads its values as a vector.
  bool isFlat = false;
};

/// Builds the module of one model.
class GraphBuilder {
public:
  GraphBuilder(const Checkpoint &checkpoint, MLIRContext &context)
      : config(checkpoint.config()), checkpoint(checkpoint), builder(&context),
        module(ModuleOp::create(at("model"))), weights(&context) {}

  OwningOpRef<ModuleOp> build();

  bool uses(const std::string &tensor) const { return used.contains(tensor); }

private:
  /// Location of the operation `path` of the Hugging Face model.
  Location at(const Twine &path) {
    return NameLoc::get(builder.getStringAttr(path));
  }
  /// Outputs of the last product.
  int64_t outputs() const { return config.output.width(config.vocabSize); }
  /// The type of f32 activations with `size` values for each token.
  RankedTensorType activations(int64_t size) {
    return RankedTensorType::get({ShapedType::kDynamic, size},
                                 builder.getF32Type());
  }

  FlatSymbolRefAttr weight(const Twine &path, llvm::ArrayRef<int64_t> shape,
                           const WeightTraits &traits = {});
  Value linear(const std::string &path, Value input, int64_t outputs,
               const WeightTraits &traits = {});
  Value rmsNorm(const std::string &path, Value input,
                std::optional<int64_t> headDim = {});
  Value attention(int64_t layer, Value input);
  Value linearAttention(int64_t layer, const LinearAttention &sizes,
                        Value input);
  Value mlp(const std::string &path, Value input, int64_t width);
  Value experts(const std::string &path, const ExpertsShape &sizes,
                Value input);
  Value lmHead(Value input, FlatSymbolRefAttr embedding);
  void setFacts();

  const ModelConfig &config;
  const Checkpoint &checkpoint;
  /// Appends to the body of `forward`.
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
  /// Inserts before `forward`.
  OpBuilder weights;
  /// Names of the weights that have a symbol, and of their tensors.
  std::set<std::string> symbols, used;
  Value cos, sin;
};
} // namespace

/// The symbol of the weight `path`, which must have `shape`.
FlatSymbolRefAttr GraphBuilder::weight(const Twine &path,
                                       llvm::ArrayRef<int64_t> shape,
                                       const WeightTraits &traits) {
  MLIRContext *context = builder.getContext();
  const std::string name = path.str();
  const auto symbol = FlatSymbolRefAttr::get(context, name);
  if (!symbols.insert(name).second)
    return symbol;
  const WeightSources::Entry &entry = checkpoint.weight(name, {shape.vec()});
  used.insert(entry.tensors.begin(), entry.tensors.end());
  // The ops read columns in the model's order.
  const WeightFormat kept = entry.source->columnOrder().empty()
                                ? entry.source->keptFormat()
                                : WeightFormat::Q8_0;
  const Type element = kept == WeightFormat::BF16 ? Type(builder.getBF16Type())
                                                  : builder.getF32Type();
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
  WeightOp::create(weights, at(path), name,
                   RankedTensorType::get(type, element),
                   SourceAttr::get(context, builder.getStringAttr(name),
                                   hasIntegers ? format : FormatAttr(),
                                   hasIntegers ? FormatAttr() : format),
                   traits.isExact, FormatAttr());
  return symbol;
}

/// The product `path`.
Value GraphBuilder::linear(const std::string &path, Value input,
                           int64_t outputs, const WeightTraits &traits) {
  const int64_t k = cast<RankedTensorType>(input.getType()).getDimSize(1);
  LinearOp::Properties properties;
  properties.setWeights(builder.getArrayAttr(
      weight("model." + path + ".weight", {outputs, k}, traits)));
  return LinearOp::create(builder, at(path), TypeRange(activations(outputs)),
                          ValueRange(input), properties)
      .getResult(0);
}

/// The norm `path` of a token's activations, or of each head of `headDim` of
/// them.
Value GraphBuilder::rmsNorm(const std::string &path, Value input,
                            std::optional<int64_t> headDim) {
  RmsNormOp::Properties properties;
  properties.setWeight(
      weight("model." + path + ".weight", {headDim.value_or(widthOf(input))}));
  properties.setEps(builder.getF64FloatAttr(config.rmsNormEps));
  if (headDim)
    properties.setHeadDim(builder.getI64IntegerAttr(*headDim));
  return RmsNormOp::create(builder, at(path), TypeRange(input.getType()),
                           ValueRange(input), properties);
}

/// Attention of one layer, from the normed activations to the result of o_proj.
Value GraphBuilder::attention(int64_t layer, Value input) {
  const std::string path = "layers." + std::to_string(layer) + ".self_attn";
  const LayerTraits &traits = layersOf(config.architecture);
  const int64_t keySize = config.kvHeads * config.headDim;
  const auto biased = [&](const std::string &projection, Value result) {
    if (!traits.hasBiases)
      return result;
    const std::string bias = projection + ".bias";
    return Value(AddBiasOp::create(builder, at(bias), result,
                                   weight("model." + bias, {widthOf(result)})));
  };
  const int64_t querySize = config.heads * config.headDim;
  Value q = linear(path + ".q_proj", input, querySize), gate;
  if (traits.hasGate)
    gate = linear(path + ".q_proj.gate", input, querySize);
  q = biased(path + ".q_proj", q);
  const auto project = [&](const std::string &name) {
    return biased(path + name, linear(path + name, input, keySize));
  };
  Value k = project(".k_proj");
  Value v = project(".v_proj");
  if (traits.hasHeadNorms) {
    q = rmsNorm(path + ".q_norm", q, config.headDim);
    k = rmsNorm(path + ".k_norm", k, config.headDim);
  }
  IntegerAttr partOf;
  if (config.rotatedDim != config.headDim)
    partOf = builder.getI64IntegerAttr(config.headDim);
  q = RopeOp::create(builder, at(path + ".q_rope"), q, cos, sin, partOf);
  k = RopeOp::create(builder, at(path + ".k_rope"), k, cos, sin, partOf);

  AppendOp::Properties cached;
  cached.setLayer(builder.getI64IntegerAttr(layer));
  cached.setKvHeads(builder.getI64IntegerAttr(config.kvHeads));
  cached.setOperandSegmentSizes({1, 1, 0, 0});
  AppendOp::create(builder, at(path + ".append"), TypeRange(),
                   ValueRange({k, v}), cached);
  AttentionOp::Properties properties;
  properties.setLayer(builder.getI64IntegerAttr(layer));
  properties.setHeads(builder.getI64IntegerAttr(config.heads));
  properties.setKvHeads(builder.getI64IntegerAttr(config.kvHeads));
  properties.setOperandSegmentSizes({1, 0, 0});
  Value o = AttentionOp::create(builder, at(path), TypeRange(q.getType()),
                                ValueRange(q), properties);
  if (gate)
    o = GateOp::create(builder, at(path + ".gate"), TypeRange(o.getType()),
                       ValueRange({o, gate}), GateOp::Properties());
  return linear(path + ".o_proj", o, config.hiddenSize);
}

/// Linear attention of one layer, from the normed activations to the result of
/// out_proj.
Value GraphBuilder::linearAttention(int64_t layer, const LinearAttention &sizes,
                                    Value input) {
  const std::string path = "layers." + std::to_string(layer) + ".linear_attn";
  const std::string tensor = "model." + path;
  const auto &[keyHeads, keyDim, heads, valueDim] = sizes;
  const int64_t channels = sizes.channels();
  const WeightTraits exact = {.isExact = true};
  Value qkv = linear(path + ".in_proj_qkv", input, channels);
  Value z = linear(path + ".in_proj_z", input, heads * valueDim);
  Value b = linear(path + ".in_proj_b", input, heads, exact);
  Value a = linear(path + ".in_proj_a", input, heads, exact);

  ShortConvolutionOp::Properties convolution;
  convolution.setWeight(weight(tensor + ".conv1d.weight",
                               {channels, kConvolutionTaps}, {.isFlat = true}));
  convolution.setLayer(builder.getI64IntegerAttr(layer));
  qkv = ShortConvolutionOp::create(builder, at(path + ".conv1d"),
                                   TypeRange(qkv.getType()), ValueRange(qkv),
                                   convolution);

  DeltaGatesOp::Properties gates;
  gates.setRate(weight(tensor + ".A_log", {heads}));
  gates.setBias(weight(tensor + ".dt_bias", {heads}));
  auto gate = DeltaGatesOp::create(builder, at(path + ".gates"),
                                   TypeRange({a.getType(), a.getType()}),
                                   ValueRange({a, b}), gates);

  DeltaRuleOp::Properties rule;
  rule.setLayer(builder.getI64IntegerAttr(layer));
  rule.setKeyHeads(builder.getI64IntegerAttr(keyHeads));
  if (config.interleavesValueHeads && keyHeads != 1 && keyHeads != heads)
    rule.setInterleaved(builder.getUnitAttr());
  Value o = DeltaRuleOp::create(
      builder, at(path), TypeRange(z.getType()),
      ValueRange({qkv, gate.getDecay(), gate.getBeta()}), rule);
  o = rmsNorm(path + ".norm", o, valueDim);
  o = SwiGluOp::create(builder, at(path + ".gate"), TypeRange(o.getType()),
                       ValueRange({z, o}), SwiGluOp::Properties());
  return linear(path + ".out_proj", o, config.hiddenSize);
}

Value GraphBuilder::mlp(const std::string &path, Value input, int64_t width) {
  const Value gate = linear(path + ".gate_proj", input, width);
  const Value up = linear(path + ".up_proj", input, width);
  const Value product =
      SwiGluOp::create(builder, at(path + ".act_fn"), TypeRange(gate.getType()),
                       ValueRange({gate, up}), SwiGluOp::Properties());
  return linear(path + ".down_proj", product, config.hiddenSize);
}

/// Experts in place of an mlp.
Value GraphBuilder::experts(const std::string &path, const ExpertsShape &sizes,
                            Value input) {
  const auto &[count, active, width, sharedWidth, normalized] = sizes;
  const int64_t hidden = config.hiddenSize;
  const WeightTraits exact = {.isExact = true};
  llvm::SmallVector<Value> logits = {
      linear(path + ".gate", input, count, exact)};
  llvm::SmallVector<Value> shared;
  if (sharedWidth != 0) {
    logits.push_back(linear(path + ".shared_expert_gate", input, 1, exact));
    shared.push_back(mlp(path + ".shared_expert", input, sharedWidth));
  }
  const Type integers = builder.getI32Type();
  const Type choices =
      RankedTensorType::get({ShapedType::kDynamic, active}, integers);
  RouteOp::Properties choice;
  if (normalized)
    choice.setNormalized(builder.getUnitAttr());
  auto route = RouteOp::create(
      builder, at(path + ".route"),
      TypeRange({activations(active + std::ssize(shared)), choices, choices,
                 RankedTensorType::get(count + 1, integers)}),
      logits, choice);

  const std::string tensors = "model." + path + ".experts.";
  ExpertsUpOp::Properties up;
  up.setGate(weight(tensors + "gate_proj.weight", {count, width, hidden}));
  up.setUp(weight(tensors + "up_proj.weight", {count, width, hidden}));
  const Type hiddenRows = RankedTensorType::get(
      {ShapedType::kDynamic, active, width}, builder.getF32Type());
  const Value product = ExpertsUpOp::create(
      builder, at(path + ".experts.gate_up_proj"), TypeRange(hiddenRows),
      ValueRange({input, route.getOrder(), route.getFirst()}), up);
  ExpertsDownOp::Properties down;
  down.setDown(weight(tensors + "down_proj.weight", {count, hidden, width}));
  llvm::SmallVector<Value> operands = {product, route.getWeights(),
                                       route.getOrder(), route.getFirst()};
  llvm::append_range(operands, shared);
  return ExpertsDownOp::create(builder, at(path + ".experts.down_proj"),
                               TypeRange(input.getType()), operands, down);
}

/// The logits or scores of normed rows (ModelOutput::width).
Value GraphBuilder::lmHead(Value input, FlatSymbolRefAttr embedding) {
  LmHeadOp::Properties head;
  if (config.output.kind == OutputKind::Scores)
    head.setWeight(weight("score.weight", {outputs(), config.hiddenSize}));
  else if (config.output.kind == OutputKind::None || config.tied)
    head.setWeight(embedding);
  else
    head.setWeight(weight("lm_head.weight", {outputs(), config.hiddenSize}));
  return LmHeadOp::create(builder, at("lm_head"),
                          TypeRange(activations(outputs())), ValueRange(input),
                          head);
}

void GraphBuilder::setFacts() {
  const std::string_view architecture = infoOf(config.architecture).name;
  llvm::SmallVector<NamedAttribute> facts = {
      builder.getNamedAttr("architecture",
                           builder.getStringAttr(StringRef(
                               architecture.data(), architecture.size()))),
      builder.getNamedAttr("max_position",
                           attributeOf(builder, config.maxPosition))};
  for (const Fact<ModelShape> &fact : kShapeFacts)
    fact.visitIn(config, [&](auto value) {
      facts.push_back(
          builder.getNamedAttr(fact.key, attributeOf(builder, value)));
    });
  ModuleOp op = *module;
  op->setAttr(kModelAttr, builder.getDictionaryAttr(facts));
  op->setAttr(kStageAttr, builder.getStringAttr(stringifyStage(Stage::Graph)));
}

OwningOpRef<ModuleOp> GraphBuilder::build() try {
  setFacts();
  const Type tokens =
      RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
  builder.setInsertionPointToEnd(module->getBody());
  auto forward = func::FuncOp::create(
      builder, at(kForwardName), kForwardName,
      builder.getFunctionType({tokens, tokens}, activations(outputs())));
  forward->setAttr(kMaxTokensAttr,
                   builder.getI64IntegerAttr(kDefaultMaxTokens));
  forward->setAttr(kMaxRowsAttr, builder.getI64IntegerAttr(kDefaultMaxRows));
  Block *body = forward.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  weights.setInsertionPoint(forward);

  const llvm::SmallVector<int64_t> vocabulary{config.vocabSize,
                                              config.hiddenSize};
  const FlatSymbolRefAttr embedding =
      weight("model.embed_tokens.weight", vocabulary);
  EmbeddingOp::Properties gather;
  gather.setWeight(embedding);
  Value x = EmbeddingOp::create(builder, at("embed_tokens"),
                                TypeRange(activations(config.hiddenSize)),
                                ValueRange(body->getArgument(0)), gather);
  const int64_t rotations = config.rotatedDim / 2;
  YarnAttr yarn;
  if (config.yarn)
    yarn =
        YarnAttr::get(builder.getContext(), llvm::APFloat(config.yarn->factor),
                      config.yarn->positions, llvm::APFloat(config.yarn->fast),
                      llvm::APFloat(config.yarn->slow));
  WeightOp::create(weights, at(kFrequenciesName), kFrequenciesName,
                   RankedTensorType::get(rotations, builder.getF32Type()),
                   FrequenciesAttr::get(builder.getContext(),
                                        llvm::APFloat(config.ropeTheta), yarn),
                   /*exact=*/false, FormatAttr());
  RopeTableOp::Properties frequencies;
  if (config.ropeScale != 1)
    frequencies.setScale(
        builder.getF32FloatAttr(static_cast<float>(config.ropeScale)));
  frequencies.setFrequencies(
      FlatSymbolRefAttr::get(builder.getContext(), kFrequenciesName));
  auto table =
      RopeTableOp::create(builder, at("rotary_emb"),
                          {activations(rotations), activations(rotations)},
                          ValueRange(body->getArgument(1)), frequencies);
  cos = table.getCos();
  sin = table.getSin();

  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string path = "layers." + std::to_string(layer);
    const auto *linear = std::get_if<LinearAttention>(
        &config.layerKinds[static_cast<size_t>(layer)]);
    const Value normed = rmsNorm(path + ".input_layernorm", x);
    const Value mixed = linear ? linearAttention(layer, *linear, normed)
                               : attention(layer, normed);
    x = AddOp::create(
        builder,
        at(path + (linear ? ".linear_attn" : ".self_attn") + ".residual"), x,
        mixed);
    const Value input = rmsNorm(path + ".post_attention_layernorm", x);
    const ExpertsShape *sizes = config.expertsOf(layer);
    const Value computed =
        sizes ? experts(path + ".mlp", *sizes, input)
              : mlp(path + ".mlp", input, config.intermediateSize);
    x = AddOp::create(builder, at(path + ".mlp.residual"), x, computed);
  }

  x = WantedTokensOp::create(builder, at("wanted_tokens"), x);
  x = rmsNorm("norm", x);
  x = lmHead(x, embedding);
  func::ReturnOp::create(builder, at("return"), x);
  return std::move(module);
} catch (...) {
  throwInputError();
}

ImportedModel
qwen::importCheckpoint(const std::filesystem::path &path, MLIRContext &context,
                       const std::vector<std::string> &ignoredTensors,
                       const std::vector<AdapterOption> &adapters,
                       const Pruning &pruning,
                       const std::optional<RopeScaling> &scaling) {
  context.loadDialect<QwenDialect, func::FuncDialect>();
  std::vector<StoredTensors> files;
  std::unique_ptr<Checkpoint> checkpoint =
      openCheckpoint(path, [&](ModelConfig &model, WeightSources &weights) {
        for (const AdapterOption &adapter : adapters)
          files.push_back(mergeAdapter(adapter, model, weights));
      });
  std::set<std::string> removed;
  if (!pruning.layers.empty())
    removed = checkpoint->removeLayers(pruning);
  if (scaling)
    checkpoint->scaleRope(*scaling);
  checkpoint->orderColumns();
  GraphBuilder graph(*checkpoint, context);
  OwningOpRef<ModuleOp> module = graph.build();
  UnusedTensors unused(*checkpoint, ignoredTensors);
  for (const auto &[name, tensor] : checkpoint->tensors().tensors())
    if (!graph.uses(name) && !removed.contains(name))
      unused.add(name, tensor);
  return {std::move(module), std::move(files), std::move(checkpoint),
          unused.finish()};
}
