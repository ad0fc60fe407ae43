//===- GraphBuilder.cpp - From a checkpoint to the graph ------------------===//

#include "qwen/Import/Models/Import.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/Text.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;
using namespace qwen;

static std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

namespace {
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
  /// The type of f32 activations with `size` values for each token.
  RankedTensorType activations(int64_t size) {
    return RankedTensorType::get({ShapedType::kDynamic, size},
                                 builder.getF32Type());
  }

  FlatSymbolRefAttr weight(const Twine &tensor, llvm::ArrayRef<int64_t> shape);
  Value linear(const std::string &path, Value input, int64_t outputs);
  Value rmsNorm(const std::string &path, Value input, bool heads = false);
  Value attention(int64_t layer, Value input);
  Value mlp(const std::string &path, Value input);
  void setFacts();

  const ModelConfig &config;
  const Checkpoint &checkpoint;
  /// Appends to the body of `forward`.
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
  /// Inserts before `forward`.
  OpBuilder weights;
  /// Names of the tensors that have a qwen.weight.
  std::set<std::string> used;
  Value cos, sin;
};
} // namespace

/// The symbol of a tensor of the checkpoint, which must have `shape`.
FlatSymbolRefAttr GraphBuilder::weight(const Twine &tensor,
                                       llvm::ArrayRef<int64_t> shape) {
  const std::string name = tensor.str();
  const auto symbol = FlatSymbolRefAttr::get(builder.getContext(), name);
  if (!used.insert(name).second)
    return symbol;

  const StoredTensors &tensors = checkpoint.tensors();
  const StoredTensor *stored = tensors.find(name);
  if (!stored)
    throw Error(checkpoint.path().string() + " has no tensor " +
                quote(checkpoint.ownName(name)) +
                ", which its configuration demands with shape " +
                shapeText(shape));
  const std::string what = (tensors.directory() / stored->file).string() +
                           ": tensor " + quote(stored->name);
  if (llvm::ArrayRef(stored->shape) != shape)
    throw Error(what + " has shape " + shapeText(stored->shape) + " when " +
                shapeText(shape) + " is needed");
  if (!stored->type || (shape.size() == 1 && isBlocks(*stored->type)))
    throw Error(what + " has dtype " + stored->typeName +
                " when F32, F16 or BF16 is needed");
  WeightOp::create(weights, at(name), name, shape, *stored->type, stored->file,
                   stored->offset);
  return symbol;
}

/// The product `path`.
Value GraphBuilder::linear(const std::string &path, Value input,
                           int64_t outputs) {
  const int64_t k = cast<RankedTensorType>(input.getType()).getDimSize(1);
  LinearOp::Properties properties;
  properties.setWeights(
      builder.getArrayAttr(weight("model." + path + ".weight", {outputs, k})));
  return LinearOp::create(builder, at(path), TypeRange(activations(outputs)),
                          ValueRange(input), properties)
      .getResult(0);
}

/// The norm `path` of a token's activations, or of each of their heads.
Value GraphBuilder::rmsNorm(const std::string &path, Value input, bool heads) {
  const Type type = input.getType();
  const int64_t size =
      heads ? config.headDim : cast<RankedTensorType>(type).getDimSize(1);
  RmsNormOp::Properties properties;
  properties.setWeight(weight("model." + path + ".weight", {size}));
  properties.setEps(builder.getF64FloatAttr(config.rmsNormEps));
  if (heads)
    properties.setHeadDim(builder.getI64IntegerAttr(size));
  return RmsNormOp::create(builder, at(path), TypeRange(type),
                           ValueRange(input), properties);
}

/// Attention of one layer, from the normed activations to the result of o_proj.
Value GraphBuilder::attention(int64_t layer, Value input) {
  const std::string path = "layers." + std::to_string(layer) + ".self_attn";
  const int64_t querySize = config.heads * config.headDim;
  const int64_t keySize = config.kvHeads * config.headDim;
  const auto project = [&](const char *name, int64_t outputs) -> Value {
    const std::string projection = path + name;
    Value result = linear(projection, input, outputs);
    if (!infoOf(config.architecture).hasBiases)
      return result;
    const std::string bias = projection + ".bias";
    return AddBiasOp::create(builder, at(bias), result,
                             weight("model." + bias, {outputs}));
  };
  Value q = project(".q_proj", querySize);
  Value k = project(".k_proj", keySize);
  Value v = project(".v_proj", keySize);
  if (infoOf(config.architecture).hasHeadNorms) {
    q = rmsNorm(path + ".q_norm", q, /*heads=*/true);
    k = rmsNorm(path + ".k_norm", k, /*heads=*/true);
  }
  q = RopeOp::create(builder, at(path + ".q_rope"), q, cos, sin);
  k = RopeOp::create(builder, at(path + ".k_rope"), k, cos, sin);

  AttentionOp::Properties properties;
  properties.setLayer(builder.getI64IntegerAttr(layer));
  properties.setHeads(builder.getI64IntegerAttr(config.heads));
  properties.setKvHeads(builder.getI64IntegerAttr(config.kvHeads));
  properties.setOperandSegmentSizes({1, 1, 1, 0, 0});
  Value o = AttentionOp::create(builder, at(path), TypeRange(q.getType()),
                                ValueRange({q, k, v}), properties);
  return linear(path + ".o_proj", o, config.hiddenSize);
}

Value GraphBuilder::mlp(const std::string &path, Value input) {
  const Value gate =
      linear(path + ".gate_proj", input, config.intermediateSize);
  const Value up = linear(path + ".up_proj", input, config.intermediateSize);
  const Value product =
      SwiGluOp::create(builder, at(path + ".act_fn"), TypeRange(gate.getType()),
                       ValueRange({gate, up}), SwiGluOp::Properties());
  return linear(path + ".down_proj", product, config.hiddenSize);
}

void GraphBuilder::setFacts() {
  const auto number = [&](const char *name, int64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  };
  const auto real = [&](const char *name, double value) {
    return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
  };
  const std::string_view architecture = infoOf(config.architecture).name;
  ModuleOp op = *module;
  op->setAttr(
      kModelAttr,
      builder.getDictionaryAttr({
          builder.getNamedAttr("architecture",
                               builder.getStringAttr(StringRef(
                                   architecture.data(), architecture.size()))),
          number("vocab_size", config.vocabSize),
          number("hidden_size", config.hiddenSize),
          number("layers", config.layers),
          number("heads", config.heads),
          number("kv_heads", config.kvHeads),
          number("head_dim", config.headDim),
          number("intermediate_size", config.intermediateSize),
          real("rope_theta", config.ropeTheta),
          real("rms_norm_eps", config.rmsNormEps),
          builder.getNamedAttr("tied", builder.getBoolAttr(config.tied)),
          number("max_position", config.maxPosition),
      }));
  op->setAttr(kStageAttr, builder.getStringAttr(stringifyStage(Stage::Graph)));
  op->setAttr(kMaxTokensAttr, builder.getI64IntegerAttr(kDefaultMaxTokens));
  op->setAttr(kMaxRowsAttr, builder.getI64IntegerAttr(kDefaultMaxRows));
}

OwningOpRef<ModuleOp> GraphBuilder::build() {
  setFacts();
  const Type tokens =
      RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
  const Type logits = activations(config.vocabSize);
  builder.setInsertionPointToEnd(module->getBody());
  auto forward =
      func::FuncOp::create(builder, at(kForwardName), kForwardName,
                           builder.getFunctionType({tokens, tokens}, logits));
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
  const int64_t rotations = config.headDim / 2;
  constexpr char kFrequencies[] = "rope.frequencies";
  YarnAttr yarn;
  if (config.yarn)
    yarn =
        YarnAttr::get(builder.getContext(), llvm::APFloat(config.yarn->factor),
                      config.yarn->positions, llvm::APFloat(config.yarn->fast),
                      llvm::APFloat(config.yarn->slow));
  WeightOp::create(weights, at(kFrequencies), kFrequencies,
                   RankedTensorType::get(rotations, builder.getF32Type()),
                   FrequenciesAttr::get(builder.getContext(),
                                        llvm::APFloat(config.ropeTheta), yarn));
  RopeTableOp::Properties frequencies;
  if (config.ropeScale != 1)
    frequencies.setScale(
        builder.getF32FloatAttr(static_cast<float>(config.ropeScale)));
  frequencies.setFrequencies(
      FlatSymbolRefAttr::get(builder.getContext(), kFrequencies));
  auto table =
      RopeTableOp::create(builder, at("rotary_emb"),
                          {activations(rotations), activations(rotations)},
                          ValueRange(body->getArgument(1)), frequencies);
  cos = table.getCos();
  sin = table.getSin();

  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string path = "layers." + std::to_string(layer);
    const Value attended =
        attention(layer, rmsNorm(path + ".input_layernorm", x));
    x = AddOp::create(builder, at(path + ".self_attn.residual"), x, attended);
    const Value computed =
        mlp(path + ".mlp", rmsNorm(path + ".post_attention_layernorm", x));
    x = AddOp::create(builder, at(path + ".mlp.residual"), x, computed);
  }

  x = WantedRowsOp::create(builder, at("wanted_rows"), x);
  x = rmsNorm("norm", x);
  LmHeadOp::Properties head;
  head.setWeight(config.tied ? embedding
                             : weight("lm_head.weight", vocabulary));
  x = LmHeadOp::create(builder, at("lm_head"), TypeRange(logits), ValueRange(x),
                       head);
  func::ReturnOp::create(builder, at("return"), x);
  return std::move(module);
}

ImportedModel qwen::importCheckpoint(const std::filesystem::path &path,
                                     MLIRContext &context) {
  context.loadDialect<QwenDialect, func::FuncDialect>();
  std::unique_ptr<Checkpoint> checkpoint = openCheckpoint(path);
  GraphBuilder graph(*checkpoint, context);
  OwningOpRef<ModuleOp> module = graph.build();
  std::vector<std::string> unused;
  for (const auto &[name, tensor] : checkpoint->tensors().tensors())
    if (!graph.uses(name))
      unused.push_back(tensor.name);
  return {std::move(module), std::move(checkpoint), std::move(unused)};
}
