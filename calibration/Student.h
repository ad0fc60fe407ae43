//===- Student.h - A model of integers as its gradients see it --*- C++ -*-===//
//
// Runs windows of a text through a model whose matrices may have integers:
// their products read dequantized weights and rows in int8, so that the numbers
// differ from the compiled model by the order of sums alone. The backward pass
// gives what each product reads and the gradient by its result.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_STUDENT_H
#define QWEN_CALIBRATION_STUDENT_H

#include "calibration/BackwardPass.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace qwen {

class Student {
public:
  /// `chain` has the sublayers of `module`; all of its ops need backward
  /// passes. `module` and `weights` must outlive this. Sources are read
  /// whenever a sublayer runs. Without `quantizes`, no product reads rows in
  /// int8.
  Student(mlir::ModuleOp module, const WeightSources &weights,
          const SublayerChain &chain, int64_t window, unsigned threads,
          bool quantizes = true);

  /// Brings windows of tokens from the embedding to the head. Only a run that
  /// keeps the rows of all sublayers can go back. Throws Error.
  void runForward(std::span<const int32_t> ids, bool keepsRows);

  /// Receives logits [tokens][width] of some tokens of the run, from token
  /// `first` on, of one window.
  using LogitsFn = std::function<void(int64_t first, int64_t width,
                                      std::span<const float> logits)>;
  void forLogits(const LogitsFn &receive);

  /// The same, and returns the gradient by these logits.
  using SlopeFn = std::function<std::vector<float>(
      int64_t first, int64_t width, std::span<const float> logits)>;
  /// Receives rows [tokens][k] that a product reads, and the gradient by its
  /// result.
  using ReceiveFn = std::function<void(std::span<const float> rows,
                                       const ProductGradient &gradient)>;
  /// Returns the gradient by the rows of the embedding, and adds the gradients
  /// by the weights of norms to `norms`. Throws Error.
  std::vector<float> runBackward(const SlopeFn &slopeOf,
                                 const ReceiveFn &receive,
                                 VectorGradients &norms);

  /// The most tokens of a call of LogitsFn.
  static constexpr int64_t kHeadTokens = 128;

private:
  std::vector<float> embed(std::span<const int32_t> ids) const;
  /// Calls `work` with the first token and the number of tokens of each part of
  /// a window that the head reads together.
  void forHeadTokens(
      const std::function<void(int64_t first, int64_t tokens)> &work) const;
  /// `tokens` rows before the head, from token `first` on.
  std::span<const float> headRows(int64_t first, int64_t tokens) const;
  BackwardPass::ReceiveFn receiver(const Sublayer &sublayer, BackwardPass &pass,
                                   const ReceiveFn &receive) const;

  mlir::ModuleOp module;
  const WeightSources &sources;
  const SublayerChain &chain;
  const int64_t window, width;
  const bool quantizes;
  BackwardWeights weights;
  /// The rows before each sublayer, or before the head only.
  std::vector<std::vector<float>> rows;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_STUDENT_H
