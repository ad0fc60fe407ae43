//===- BackwardPass.h - Gradients through a part of a model -----*- C++ -*-===//
//
// Brings the gradient of a loss from the result of a sublayer to its input
// (docs/decisions/0040-gradients.md). What the ops computed is computed again,
// as far as their gradients need it. The rules of ops are rows of a table in
// BackwardOps.cpp; their numbers are in qwen/Gradients.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_BACKWARDPASS_H
#define QWEN_CALIBRATION_BACKWARDPASS_H

#include "calibration/Sublayers.h"
#include "qwen/Gradients/Products.h"
#include "qwen/Weights/WeightSource.h"

#include "llvm/ADT/StringMap.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// The weights of a sublayer, as its gradients read them.
class BackwardWeights {
public:
  /// `module` is at stage "graph"; it and `weights`, whose ops it names, must
  /// outlive this.
  BackwardWeights(mlir::ModuleOp module, const WeightSources &weights,
                  unsigned threads)
      : symbols(module), weights(weights), threads(threads) {}

  /// The values of a vector, valid until clear(). Throws Error, like those
  /// below.
  std::span<const float> vector(mlir::FlatSymbolRefAttr name);
  /// A matrix [outputs][k]: its rows for products of inputs, and its columns
  /// for products of gradients.
  const ProductSide &outputs(mlir::FlatSymbolRefAttr name);
  const ProductSide &columns(mlir::FlatSymbolRefAttr name);

  /// Whether a matrix has integers, so that products read int8.
  bool hasIntegers(mlir::FlatSymbolRefAttr name) const;

  /// Forgets all of them.
  void clear();
  unsigned threadCount() const { return threads; }

private:
  std::vector<float> read(mlir::FlatSymbolRefAttr name, int64_t &k) const;

  mlir::SymbolTable symbols;
  const WeightSources &weights;
  const unsigned threads;
  llvm::StringMap<std::vector<float>> vectors;
  llvm::StringMap<std::optional<ProductSide>> outputSides, columnSides;
};

/// The ops of a sublayer that depend on its input, in order.
llvm::SmallVector<mlir::Operation *> opsOf(const Sublayer &sublayer);
/// An op of the sublayer that has no backward pass, or null.
mlir::Operation *findOpWithoutGradient(const Sublayer &sublayer);

/// One run over some tokens, which are windows of a text.
class BackwardPass {
public:
  /// Token i of the run has position i mod `window`. Products of the sublayer's
  /// ops read `weights`. With `quantizes`, products of matrices of integers
  /// read rows in int8, and gradients pass the rounding as if it did nothing.
  BackwardPass(BackwardWeights &weights, int64_t tokens, int64_t window,
               bool quantizes = false)
      : weights(weights), tokens(tokens), window(window), quantizes(quantizes) {
  }

  /// The result of `sublayer`, or the logits of the head, whose rows behind the
  /// embedding or the sublayer before are `input`. run() does not compute again
  /// what this has computed. Throws Error.
  std::span<const float> runForward(const Sublayer &sublayer,
                                    std::span<const float> input);

  /// Receives the gradient by the result of a product: rows [tokens][outputs].
  using ReceiveFn = std::function<void(llvm::StringRef weight,
                                       std::span<const float> gradient)>;

  /// `slope` is the gradient by the result of `sublayer` (by the logits of the
  /// head) and becomes the gradient by its input, whose rows are `input`. All
  /// of its ops have a backward pass. Throws Error.
  void run(const Sublayer &sublayer, std::span<const float> input,
           std::vector<float> &slope, const ReceiveFn &receive);

  // What the rows of the table call.
  /// The rows [tokens][width] of a value.
  std::span<const float> rows(mlir::Value value);
  /// What the product with `weight` reads of its input.
  std::span<const float> productRows(mlir::Value input,
                                     mlir::FlatSymbolRefAttr weight);
  /// The rows of a value, which its op computes: zeros at first.
  std::vector<float> &make(mlir::Value value);
  /// The gradient by a value: zeros at first.
  std::vector<float> &gradient(mlir::Value value);
  /// Calls `work` for each token, on all threads.
  void forEachToken(const std::function<void(int64_t token)> &work) const;

  BackwardWeights &weights;
  const int64_t tokens, window;

private:
  void roundRows(std::vector<float> &rows) const;

  const bool quantizes;
  /// By the opaque pointer of a value; entries stay where they are.
  std::map<const void *, std::vector<float>> values, rounded, slopes;
};

/// A row of the table of backward passes.
struct BackwardOp {
  llvm::StringRef name;
  /// Computes the results of `op`; null if it has none.
  void (*forward)(BackwardPass &pass, mlir::Operation *op);
  /// Adds to the gradients by the operands of `op`, from those by its results.
  void (*backward)(BackwardPass &pass, mlir::Operation *op);
};

/// The row of an op, or null.
const BackwardOp *findBackward(mlir::Operation *op);

} // namespace qwen

#endif // QWEN_CALIBRATION_BACKWARDPASS_H
