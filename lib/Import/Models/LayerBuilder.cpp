//===- LayerBuilder.cpp - The ops of a model's layers ---------------------===//

#include "LayerBuilder.h"

using namespace mlir;
using namespace qwen;

LayerBuilder::LayerBuilder(ModuleBuilder &module, const ModelConfig &config,
                           const ModelScope &scope, Block *block)
    : module(module), config(config), scope(scope),
      builder(OpBuilder::atBlockEnd(block)),
      firstCache(module.addCaches(config.layers)) {}

Value LayerBuilder::embedding(Value ids) {
  EmbeddingOp::Properties gather;
  gather.setWeight(embeddingWeight());
  return EmbeddingOp::create(builder, at("embed_tokens"),
                             TypeRange(typeLike(ids, config.hiddenSize)),
                             ValueRange(ids), gather);
}

void LayerBuilder::rotateBy(Value positions) {
  const int64_t rotations = config.rotatedDim / 2;
  YarnAttr yarn;
  if (config.yarn)
    yarn =
        YarnAttr::get(builder.getContext(), llvm::APFloat(config.yarn->factor),
                      config.yarn->positions, llvm::APFloat(config.yarn->fast),
                      llvm::APFloat(config.yarn->slow));
  RopeTableOp::Properties frequencies;
  frequencies.setFrequencies(module.vector(
      scope.op(kFrequenciesName), rotations,
      FrequenciesAttr::get(builder.getContext(),
                           llvm::APFloat(config.ropeTheta), yarn)));
  if (const double scale = config.ropeScale(); scale != 1)
    frequencies.setScale(builder.getF32FloatAttr(static_cast<float>(scale)));
  auto table = RopeTableOp::create(
      builder, at("rotary_emb"),
      {typeLike(positions, rotations), typeLike(positions, rotations)},
      ValueRange(positions), frequencies);
  cos = table.getCos();
  sin = table.getSin();
}

Value LayerBuilder::linear(llvm::StringRef path, Value input, int64_t outputs,
                           const WeightTraits &traits) {
  const int64_t k = cast<RankedTensorType>(input.getType()).getDimSize(1);
  LinearOp::Properties properties;
  properties.setWeights(
      builder.getArrayAttr(weight(path + ".weight", {outputs, k}, traits)));
  return LinearOp::create(builder, at(path),
                          TypeRange(typeLike(input, outputs)),
                          ValueRange(input), properties)
      .getResult(0);
}

Value LayerBuilder::sum(llvm::StringRef path, Value a, Value b) {
  return AddOp::create(builder, at(path), a, b);
}

Value LayerBuilder::norm(llvm::StringRef path, Value input,
                         std::optional<int64_t> headDim) {
  RmsNormOp::Properties properties;
  properties.setWeight(
      weight(path + ".weight", {headDim.value_or(widthOf(input))}));
  properties.setEps(builder.getF64FloatAttr(config.rmsNormEps));
  if (headDim)
    properties.setHeadDim(builder.getI64IntegerAttr(*headDim));
  return RmsNormOp::create(builder, at(path), TypeRange(input.getType()),
                           ValueRange(input), properties);
}

/// Attention of one layer, from the normed activations to the result of o_proj.
Value LayerBuilder::attention(int64_t layer, Value input) {
  const std::string path = ModelScope::layerPath(layer) + ".self_attn";
  const LayerTraits &traits = layersOf(config.architecture);
  const int64_t keySize = config.kvHeads * config.headDim;
  const auto biased = [&](const std::string &projection, Value result) {
    if (!traits.hasBiases)
      return result;
    const std::string bias = projection + ".bias";
    return Value(AddBiasOp::create(builder, at(bias), result,
                                   weight(bias, {widthOf(result)})));
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
    q = norm(path + ".q_norm", q, config.headDim);
    k = norm(path + ".k_norm", k, config.headDim);
  }
  IntegerAttr partOf;
  if (config.rotatedDim != config.headDim)
    partOf = builder.getI64IntegerAttr(config.headDim);
  q = RopeOp::create(builder, at(path + ".q_rope"), q, cos, sin, partOf);
  k = RopeOp::create(builder, at(path + ".k_rope"), k, cos, sin, partOf);

  AppendOp::Properties cached;
  cached.setLayer(cacheOf(layer));
  cached.setKvHeads(builder.getI64IntegerAttr(config.kvHeads));
  cached.setOperandSegmentSizes({1, 1, 0, 0});
  AppendOp::create(builder, at(path + ".append"), TypeRange(),
                   ValueRange({k, v}), cached);
  AttentionOp::Properties properties;
  properties.setLayer(cacheOf(layer));
  properties.setHeads(builder.getI64IntegerAttr(config.heads));
  properties.setKvHeads(builder.getI64IntegerAttr(config.kvHeads));
  properties.setOperandSegmentSizes({1, 0, 0, 0, 0, 0});
  Value o = AttentionOp::create(builder, at(path), TypeRange(q.getType()),
                                ValueRange(q), properties);
  if (gate)
    o = GateOp::create(builder, at(path + ".gate"), TypeRange(o.getType()),
                       ValueRange({o, gate}), GateOp::Properties());
  return linear(path + ".o_proj", o, config.hiddenSize);
}

/// Linear attention of one layer, from the normed activations to the result of
/// out_proj.
Value LayerBuilder::linearAttention(int64_t layer, const LinearAttention &sizes,
                                    Value input) {
  const std::string path = ModelScope::layerPath(layer) + ".linear_attn";
  const auto &[keyHeads, keyDim, heads, valueDim] = sizes;
  const int64_t channels = sizes.channels();
  const WeightTraits exact = {.isExact = true};
  Value qkv = linear(path + ".in_proj_qkv", input, channels);
  Value z = linear(path + ".in_proj_z", input, heads * valueDim);
  Value b = linear(path + ".in_proj_b", input, heads, exact);
  Value a = linear(path + ".in_proj_a", input, heads, exact);

  ShortConvolutionOp::Properties convolution;
  convolution.setWeight(weight(path + ".conv1d.weight",
                               {channels, kConvolutionTaps}, {.isFlat = true}));
  convolution.setLayer(cacheOf(layer));
  qkv = ShortConvolutionOp::create(builder, at(path + ".conv1d"),
                                   TypeRange(qkv.getType()), ValueRange(qkv),
                                   convolution);

  DeltaGatesOp::Properties gates;
  gates.setRate(weight(path + ".A_log", {heads}));
  gates.setBias(weight(path + ".dt_bias", {heads}));
  auto gate = DeltaGatesOp::create(builder, at(path + ".gates"),
                                   TypeRange({a.getType(), a.getType()}),
                                   ValueRange({a, b}), gates);

  DeltaRuleOp::Properties rule;
  rule.setLayer(cacheOf(layer));
  rule.setKeyHeads(builder.getI64IntegerAttr(keyHeads));
  if (config.interleavesValueHeads && keyHeads != 1 && keyHeads != heads)
    rule.setInterleaved(builder.getUnitAttr());
  Value o = DeltaRuleOp::create(
      builder, at(path), TypeRange(z.getType()),
      ValueRange({qkv, gate.getDecay(), gate.getBeta()}), rule);
  o = norm(path + ".norm", o, valueDim);
  o = SwiGluOp::create(builder, at(path + ".gate"), TypeRange(o.getType()),
                       ValueRange({z, o}), SwiGluOp::Properties());
  return linear(path + ".out_proj", o, config.hiddenSize);
}

Value LayerBuilder::mlp(const std::string &path, Value input, int64_t width) {
  const Value gate = linear(path + ".gate_proj", input, width);
  const Value up = linear(path + ".up_proj", input, width);
  const Value product =
      SwiGluOp::create(builder, at(path + ".act_fn"), TypeRange(gate.getType()),
                       ValueRange({gate, up}), SwiGluOp::Properties());
  return linear(path + ".down_proj", product, config.hiddenSize);
}

/// Experts in place of an mlp.
Value LayerBuilder::experts(const std::string &path, const ExpertsShape &sizes,
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
  const Type choices = typeLike(input, active, integers);
  RouteOp::Properties choice;
  if (normalized)
    choice.setNormalized(builder.getUnitAttr());
  auto route = RouteOp::create(
      builder, at(path + ".route"),
      TypeRange({typeLike(input, active + std::ssize(shared)), choices, choices,
                 RankedTensorType::get(count + 1, integers)}),
      logits, choice);

  const std::string tensors = path + ".experts.";
  ExpertsUpOp::Properties up;
  up.setGate(weight(tensors + "gate_proj.weight", {count, width, hidden}));
  up.setUp(weight(tensors + "up_proj.weight", {count, width, hidden}));
  const Type hiddenType = typeLike(input, {active, width});
  const Value product = ExpertsUpOp::create(
      builder, at(path + ".experts.gate_up_proj"), TypeRange(hiddenType),
      ValueRange({input, route.getOrder(), route.getFirst()}), up);
  ExpertsDownOp::Properties down;
  down.setDown(weight(tensors + "down_proj.weight", {count, hidden, width}));
  llvm::SmallVector<Value> operands = {product, route.getWeights(),
                                       route.getOrder(), route.getFirst()};
  llvm::append_range(operands, shared);
  return ExpertsDownOp::create(builder, at(path + ".experts.down_proj"),
                               TypeRange(input.getType()), operands, down);
}

Value LayerBuilder::layer(int64_t layer, Value stream) {
  const std::string path = ModelScope::layerPath(layer);
  const auto *linear = std::get_if<LinearAttention>(
      &config.layerKinds[static_cast<size_t>(layer)]);
  const Value normed = norm(path + ".input_layernorm", stream);
  const Value mixed = linear ? linearAttention(layer, *linear, normed)
                             : attention(layer, normed);
  const Value between = AddOp::create(
      builder,
      at(path + (linear ? ".linear_attn" : ".self_attn") + ".residual"), stream,
      mixed);
  const Value input = norm(path + ".post_attention_layernorm", between);
  const ExpertsShape *sizes = config.expertsOf(layer);
  const Value computed =
      sizes ? experts(path + ".mlp", *sizes, input)
            : mlp(path + ".mlp", input, config.intermediateSize);
  return AddOp::create(builder, at(path + ".mlp.residual"), between, computed);
}

Value LayerBuilder::wantedTokens(Value stream) {
  return WantedTokensOp::create(builder, at("wanted_tokens"), stream);
}

Value LayerBuilder::head(Value input) {
  const int64_t outputs = config.output.width(config.vocabSize);
  const auto matrix = [&](const char *name) {
    return module.weight(scope.beside(name), {outputs, config.hiddenSize});
  };
  LmHeadOp::Properties head;
  if (config.output.kind == OutputKind::Drafts)
    head.setWeight(module.weight(scope.weight(kTrimmedHead),
                                 {outputs, config.hiddenSize}));
  else if (config.output.kind == OutputKind::Scores)
    head.setWeight(matrix("score.weight"));
  else if (config.output.kind == OutputKind::None || config.tied)
    head.setWeight(embeddingWeight());
  else
    head.setWeight(matrix("lm_head.weight"));
  return LmHeadOp::create(builder, at("lm_head"),
                          TypeRange(typeLike(input, outputs)),
                          ValueRange(input), head);
}

void LayerBuilder::finish(ValueRange results) {
  auto end = func::ReturnOp::create(builder, at("return"), results);
  auto program = cast<func::FuncOp>(end->getParentOp());
  program.setType(
      builder.getFunctionType(program.getArgumentTypes(), results.getTypes()));
}
