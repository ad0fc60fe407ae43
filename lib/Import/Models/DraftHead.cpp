//===- DraftHead.cpp - A draft head beside a text model -------------------===//
//
// (%ids, %positions, %hidden) -> logits, hidden. With the row of `forward`
// behind the final norm and the token after it, one layer guesses the token
// after that. From there the head goes on with its own row. `forward` also
// returns its rows.
//
//===----------------------------------------------------------------------===//

#include "LayerBuilder.h"

#include "qwen/ABI/Caches.h"
#include "qwen/ABI/Program.h"
#include "qwen/Weights/Sources.h"

using namespace mlir;
using namespace qwen;

/// The layer of a head has full attention, and experts if the model has some.
std::optional<ModelConfig>
qwen::configOfDraftHead(const Checkpoint &checkpoint) {
  const ModelConfig &text = checkpoint.config();
  const ModelScope scope = {kDraftHeadTensors};
  const auto has = [&](const std::string &name) {
    return checkpoint.tensors().find(name) != nullptr;
  };
  const bool isOne = has(scope.weight("fc.weight")) &&
                     !text.hasOwnDraftEmbedding &&
                     !has(scope.layer(1) + "input_layernorm.weight");
  if (!isOne || !layersOf(text.architecture).hasGate ||
      text.output.kind != OutputKind::Logits)
    return std::nullopt;
  ModelConfig head = text;
  head.layers = 1;
  head.layerKinds = {FullAttention()};
  head.setMlpKinds({text.mlpKinds.back()});
  if (!text.draftTokens.empty()) {
    head.output.kind = OutputKind::Drafts;
    head.output.tokens = text.draftTokens;
  }
  return head;
}

/// Divides fc, too, whose columns are for the embedding and then for the row of
/// the model.
void qwen::divideDraftHead(Checkpoint &checkpoint, const ModelScope &scope,
                           const ModelConfig &head) {
  divideLayers(checkpoint, scope, head);
  const std::string path = scope.weight("fc.");
  const int64_t hidden = head.hiddenSize;
  const WeightSources::Entry both =
      checkpoint.weight(path + "weight", {{hidden, 2 * hidden}});
  checkpoint.weights().set(path + "embedding.weight",
                           {makeColumns(both.source, 0, hidden), both.tensors});
  checkpoint.weights().set(
      path + "hidden.weight",
      {makeColumns(both.source, hidden, hidden), both.tensors});
}

/// Lets a program return normed rows: of all tokens, or of the wanted ones. The
/// norm before the head keeps one reader, so that it may quantize.
static void returnHiddenRows(func::FuncOp program, bool ofAll) {
  auto wanted = *program.getOps<WantedTokensOp>().begin();
  auto norm = cast<RmsNormOp>(*wanted->user_begin());
  OpBuilder builder(norm);
  const Value from = ofAll ? wanted.getInput() : wanted.getResult();
  auto rows = RmsNormOp::create(
      builder, NameLoc::get(builder.getStringAttr(kHiddenRowsName)),
      TypeRange(from.getType()), ValueRange(from), norm.getProperties());
  Operation *end = program.front().getTerminator();
  const unsigned number = end->getNumOperands();
  end->insertOperands(number, rows.getResult());
  program.setType(builder.getFunctionType(program.getArgumentTypes(),
                                          end->getOperandTypes()));
  program.setResultAttr(number, kNameAttr,
                        builder.getStringAttr(kHiddenRowsName));
}

void qwen::buildDraftHead(ModuleBuilder &module, const ModelProgram &program) {
  const ModelConfig config = *module.checkpoint().configOf(program.scope);
  Builder types(module.context());
  const Type tokens =
      RankedTensorType::get({ShapedType::kDynamic}, types.getI32Type());
  const Type rows = RankedTensorType::get(
      {ShapedType::kDynamic, config.hiddenSize}, types.getF32Type());
  auto function = module.add(program, config,
                             types.getFunctionType({tokens, tokens, rows}, {}));
  function->setAttr(kOwnCachesAttr, types.getUnitAttr());
  function.setArgAttr(2, kNameAttr, types.getStringAttr(kHiddenRowsName));
  ModelScope scope = program.scope;
  scope.embeddingTensors = kTextModel;
  LayerBuilder builder(module, config, scope, &function.front());
  const Value embedded = builder.norm(
      "pre_fc_norm_embedding", builder.embedding(function.getArgument(0)));
  const Value hidden =
      builder.norm("pre_fc_norm_hidden", function.getArgument(2));
  Value x = builder.sum(
      "fc", builder.linear("fc.embedding", embedded, config.hiddenSize),
      builder.linear("fc.hidden", hidden, config.hiddenSize));
  builder.rotateBy(function.getArgument(1));
  x = builder.layer(0, x);
  x = builder.norm("norm", builder.wantedTokens(x));
  builder.finish(builder.head(x));
  returnHiddenRows(function, /*ofAll=*/false);
  returnHiddenRows(module.program(kForwardName), /*ofAll=*/true);
}
