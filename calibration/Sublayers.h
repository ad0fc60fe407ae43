//===- Sublayers.h - The parts of a model, in order -------------*- C++ -*-===//
//
// A model is a chain of sublayers over its residual stream: attention and MLP
// of each layer, and what lies before the head.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_SUBLAYERS_H
#define QWEN_CALIBRATION_SUBLAYERS_H

#include "qwen/Dialect/QwenDialect.h"

#include <string>
#include <vector>

namespace qwen {

/// Rows that products read, and the weights of these products.
struct ProductInput {
  /// A row a token, or a row a choice of an expert.
  mlir::Value rows;
  /// The experts that each token chose; null for a product of all tokens.
  mlir::Value ids;
  /// Every expert has as many outputs of each weight.
  int64_t experts = 1;
  std::vector<std::string> weights = {};

  /// How many of the experts read the row of a token.
  int64_t choices() const { return ids ? widthOf(ids) : 1; }
};

struct Sublayer {
  /// The path of its last op in the model, for messages.
  std::string name;
  /// The residual stream before and after it. No other rows of one token go in
  /// or out. The last sublayer, which the head follows, has no result.
  mlir::Value input, result;
  /// In the order of the first product of each.
  std::vector<ProductInput> inputs;
};

/// The embedding of `forward` (stage "graph") and what follows it.
struct SublayerChain {
  EmbeddingOp embedding;
  std::vector<Sublayer> sublayers;
};

/// Divides `forward`. A sublayer ends where only the residual stream lives on:
/// the names and numbers of layers have no meaning here. Throws Error if the
/// model is no such chain.
SublayerChain divide(mlir::func::FuncOp forward);

} // namespace qwen

#endif // QWEN_CALIBRATION_SUBLAYERS_H
