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

/// A part of a matrix: the outputs of one of `count` experts.
struct ExpertPart {
  int64_t number = 0, count = 1;
};

/// The experts that tokens chose, as `qwen.route` orders them.
struct ExpertChoices {
  /// `ofToken` experts of each token. A choice is a place here.
  std::vector<int32_t> ids;
  int64_t ofToken;
  /// The choices of one expert after another, and where each begins.
  std::vector<int32_t> order = {}, first = {};

  int64_t experts() const { return std::ssize(first) - 1; }
  int64_t begin(int64_t expert) const {
    return first[static_cast<size_t>(expert)];
  }
  /// How many tokens chose it.
  int64_t count(int64_t expert) const {
    return begin(expert + 1) - begin(expert);
  }
  /// The tokens that chose it.
  std::vector<int64_t> tokens(int64_t expert) const;
};

/// The gradient by the results of a product.
struct ProductGradient {
  llvm::StringRef weight;
  /// Rows [tokens][outputs].
  std::span<const float> slopes;
  int64_t outputs;
  /// Of a product of an expert: the tokens that chose it, and the rows
  /// [tokens][k] that it reads.
  int64_t expert = 0;
  std::span<const int64_t> tokens = {};
  std::span<const float> rows = {};

  size_t count() const { return slopes.size() / static_cast<size_t>(outputs); }
  /// The token of a row.
  size_t token(size_t row) const {
    return tokens.empty() ? row : static_cast<size_t>(tokens[row]);
  }
};

/// The gradients by the values of vectors, by the names of these weights.
using VectorGradients = llvm::StringMap<std::vector<float>>;

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
  const ProductSide &outputs(mlir::FlatSymbolRefAttr name,
                             ExpertPart part = {});
  const ProductSide &columns(mlir::FlatSymbolRefAttr name,
                             ExpertPart part = {});

  /// Whether a matrix has integers, so that products read int8.
  bool hasIntegers(mlir::FlatSymbolRefAttr name) const;

  /// Forgets all of them.
  void clear();
  unsigned threadCount() const { return threads; }

private:
  using Sides =
      std::map<std::pair<std::string, int64_t>, std::optional<ProductSide>>;
  std::vector<float> read(mlir::FlatSymbolRefAttr name, ExpertPart part,
                          int64_t &k) const;

  mlir::SymbolTable symbols;
  const WeightSources &weights;
  const unsigned threads;
  llvm::StringMap<std::vector<float>> vectors;
  /// By the name and the number of the expert.
  Sides outputSides, columnSides;
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

  using ReceiveFn = std::function<void(const ProductGradient &gradient)>;

  /// `slope` is the gradient by the result of `sublayer` (by the logits of the
  /// head) and becomes the gradient by its input, whose rows are `input`. All
  /// of its ops have a backward pass. `receive` gets the gradient by each
  /// product, except the products of experts that no token chose. If there are
  /// `norms`, adds the gradients by the weights of norms. Throws Error.
  void run(const Sublayer &sublayer, std::span<const float> input,
           std::vector<float> &slope, const ReceiveFn &receive,
           VectorGradients *norms = nullptr);

  // What the rows of the table call.
  /// The rows [tokens][width] of a value, or [choices][width] of experts.
  std::span<const float> rows(mlir::Value value);
  /// What the product with `weight` reads of its input.
  std::span<const float> productRows(mlir::Value input,
                                     mlir::FlatSymbolRefAttr weight);
  /// The rows of a value, which its op computes: zeros at first.
  std::vector<float> &make(mlir::Value value);
  /// The gradient by a value: zeros at first.
  std::vector<float> &gradient(mlir::Value value);
  /// The gradient by the weight of a norm, or null if nobody asks for it.
  float *normGradient(mlir::FlatSymbolRefAttr weight);
  /// What an op computed beside its results, by a number of its own: empty at
  /// first.
  std::vector<float> &part(mlir::Operation *op, int number);
  /// The choices whose order `order` is.
  const ExpertChoices &choices(mlir::Value order);
  void setChoices(mlir::Value order, ExpertChoices choices);
  /// Tells the gradient by the result of a product.
  void tell(const ProductGradient &gradient) const { (*receiver)(gradient); }
  /// Calls `work` for each token, on all threads.
  void forEachToken(const std::function<void(int64_t token)> &work) const;

  BackwardWeights &weights;
  const int64_t tokens, window;

private:
  void roundRows(std::vector<float> &rows, int64_t width) const;
  size_t sizeOf(mlir::Value value) const;
  void compute(mlir::Value value);

  const bool quantizes;
  const ReceiveFn *receiver = nullptr;
  VectorGradients *norms = nullptr;
  /// By the opaque pointer of a value; entries stay where they are.
  std::map<const void *, std::vector<float>> values, rounded, slopes;
  std::map<const void *, ExpertChoices> routes;
  std::map<std::pair<mlir::Operation *, int>, std::vector<float>> parts;
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
