//===- LayerBuilder.h - The ops of a model's layers -------------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_MODELS_LAYERBUILDER_H
#define QWEN_LIB_IMPORT_MODELS_LAYERBUILDER_H

#include "ModuleBuilder.h"

namespace qwen {

/// Appends the ops of a program, one for each operation of the model. A path
/// names a module inside the scope ("layers.0.self_attn.q_proj"). It knows
/// no names outside its scope.
class LayerBuilder {
public:
  /// Ops are appended to `block`. Layers have caches of their own.
  LayerBuilder(ModuleBuilder &module, const ModelConfig &config,
               const ModelScope &scope, mlir::Block *block);

  /// The rows of `ids` in the embedding.
  mlir::Value embedding(mlir::Value ids);
  /// Computes the cosines and sines of `positions`, which layers read.
  void rotateBy(mlir::Value positions);
  /// The residual stream behind layer `layer`, from that before it.
  mlir::Value layer(int64_t layer, mlir::Value stream);
  /// The wanted tokens of `stream`.
  mlir::Value wantedTokens(mlir::Value stream);
  /// The norm `path` of a token's activations, or of each head of `headDim` of
  /// them.
  mlir::Value norm(llvm::StringRef path, mlir::Value input,
                   std::optional<int64_t> headDim = {});
  /// The product `path`.
  mlir::Value linear(llvm::StringRef path, mlir::Value input, int64_t outputs,
                     const WeightTraits &traits = {});
  /// The sum of two values.
  mlir::Value sum(llvm::StringRef path, mlir::Value a, mlir::Value b);
  /// The logits or scores of normed rows (ModelOutput::width).
  mlir::Value head(mlir::Value input);
  /// Ends the program, which gives `results`.
  void finish(mlir::ValueRange results);

private:
  mlir::Location at(const llvm::Twine &path) {
    return mlir::NameLoc::get(builder.getStringAttr(scope.op(path.str())));
  }
  /// The weight `path` of the scope.
  mlir::FlatSymbolRefAttr weight(const llvm::Twine &path,
                                 llvm::ArrayRef<int64_t> shape,
                                 const WeightTraits &traits = {}) {
    return module.weight(scope.weight(path.str()), shape, traits);
  }
  mlir::FlatSymbolRefAttr embeddingWeight() {
    return module.weight(scope.embedding(),
                         {config.vocabSize, config.hiddenSize});
  }
  mlir::Value attention(int64_t layer, mlir::Value input);
  mlir::Value linearAttention(int64_t layer, const LinearAttention &sizes,
                              mlir::Value input);
  mlir::Value mlp(const std::string &path, mlir::Value input, int64_t width);
  mlir::Value experts(const std::string &path, const ExpertsShape &sizes,
                      mlir::Value input);
  mlir::IntegerAttr cacheOf(int64_t layer) {
    return builder.getI64IntegerAttr(firstCache + layer);
  }

  ModuleBuilder &module;
  const ModelConfig &config;
  const ModelScope scope;
  mlir::OpBuilder builder;
  const int64_t firstCache;
  mlir::Value cos, sin;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_MODELS_LAYERBUILDER_H
