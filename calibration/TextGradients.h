//===- TextGradients.h - Gradients of a model over a text -------*- C++ -*-===//
//
// The gradient of the log-likelihood of tokens that the model itself draws. The
// second moments of this gradient are the Fisher information
// (docs/decisions/0040-gradients.md). A text runs forward once; the backward
// pass then takes one sublayer after another, from the last.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_TEXTGRADIENTS_H
#define QWEN_CALIBRATION_TEXTGRADIENTS_H

#include "calibration/BackwardPass.h"
#include "calibration/TextRun.h"

#include <functional>
#include <span>
#include <vector>

namespace qwen {

/// Draws the token behind token `number` of a text from the softmax of its
/// logits. The same number and logits give the same token on each machine.
int32_t drawNext(size_t number, std::span<const float> logits);

class TextGradients {
public:
  using DrawFn = int32_t(size_t number, std::span<const float> logits);

  /// `chain` has all sublayers of the model, whose ops have backward passes;
  /// `stream` runs them. Kept rows lie in `place`. Throws Error if there is no
  /// room.
  TextGradients(mlir::ModuleOp module, const WeightSources &weights,
                std::vector<const Sublayer *> chain, TextRun &stream,
                unsigned threads, Place place, DrawFn *draw = drawNext);

  /// Bytes of the rows of `sublayers` sublayers and of the gradient, of so many
  /// bytes a row.
  static uint64_t bytesFor(uint64_t sublayers, uint64_t rowBytes) {
    return (sublayers + 1) * rowBytes;
  }

  /// Runs the text through the sublayers before `end`, from the rows of the
  /// embedding, and keeps the rows that each reads, and those behind. `done`
  /// learns the number of each sublayer that has run. Throws Error.
  void runForward(EmbeddingOp embedding, size_t end,
                  const std::function<void(size_t number)> &done);

  /// Receives the gradient by the result of a product, of the tokens from
  /// `first` on: ProductGradient counts them from there.
  using ReceiveFn =
      std::function<void(size_t first, const ProductGradient &gradient)>;
  /// Replaces the gradient by the rows behind sublayer `number` by that by the
  /// rows before it. The head is the first. Throws Error.
  void runBackward(size_t number, const ReceiveFn &receive);

  /// The rows that sublayer `number` reads.
  std::span<const float> rows(size_t number) const;
  /// The gradient by rows of the residual stream, [tokens][hidden size].
  std::span<float> gradient();
  /// Whether all of its values are.
  bool isFinite();

private:
  std::vector<float> lossGradient(size_t first, std::span<const float> rows);

  BackwardWeights weights;
  const std::vector<const Sublayer *> chain;
  TextRun &stream;
  DrawFn *const draw;
  /// The rows before each sublayer one after another, and the gradient.
  const Pages kept;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_TEXTGRADIENTS_H
