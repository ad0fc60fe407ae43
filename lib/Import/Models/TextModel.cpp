//===- TextModel.cpp - A text model ---------------------------------------===//
//
// (%ids, %positions) -> logits: the embedding, all layers, and the norm and the
// head of the wanted tokens.
//
//===----------------------------------------------------------------------===//

#include "LayerBuilder.h"

using namespace mlir;
using namespace qwen;

std::optional<ModelConfig>
qwen::configOfTextModel(const Checkpoint &checkpoint) {
  return textConfig(checkpoint);
}

void qwen::divideTextModel(Checkpoint &checkpoint, const ModelScope &scope,
                           const ModelConfig &config) {
  divideLayers(checkpoint, scope, config);
}

void qwen::buildTextModel(ModuleBuilder &module, const ModelProgram &program) {
  const ModelConfig config = *module.checkpoint().configOf(program.scope);
  MLIRContext *context = module.context();
  const Type tokens = RankedTensorType::get({ShapedType::kDynamic},
                                            IntegerType::get(context, 32));
  auto function = module.add(program, config,
                             FunctionType::get(context, {tokens, tokens}, {}));
  LayerBuilder builder(module, config, program.scope, &function.front());
  Value x = builder.embedding(function.getArgument(0));
  builder.rotateBy(function.getArgument(1));
  for (int64_t layer = 0; layer < config.layers; ++layer)
    x = builder.layer(layer, x);
  x = builder.norm("norm", builder.wantedTokens(x));
  builder.finish(builder.head(x));
}
