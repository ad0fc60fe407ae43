//===- Steps.h - What a calibration does for each sublayer ------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_STEPS_H
#define QWEN_CALIBRATION_STEPS_H

#include "calibration/Sublayers.h"
#include "qwen/Compiler/Compiler.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

struct StepMatrix {
  std::string name;
  WeightFormat format;
  /// Among QuantizeInput::formats.
  size_t number;
  /// The outputs of all experts.
  int64_t outputs;
  /// Whether the quantizer gets second moments of the gradients by its outputs,
  /// too.
  bool hasOutputFactor;
};

/// The matrices that share a factor of the moments of their input.
struct StepFactor {
  int64_t block;
  double damping;
  std::vector<StepMatrix> matrices;
};

/// An input that some of these matrices read.
struct StepInput {
  /// In Sublayer::inputs.
  size_t number;
  int64_t k;
  /// Each has moments and factors of its own; 1 for products of all tokens.
  int64_t experts;
  /// How many of them read the row of a token.
  int64_t choices;
  std::vector<StepFactor> factors;

  /// Multiplications of the moments of a row, of a factor of an expert, and of
  /// a matrix.
  uint64_t momentWork() const { return uint64_t(k * k) / 2; }
  uint64_t factorWork() const { return uint64_t(k * k) * uint64_t(k) / 3; }
  uint64_t matrixWork(const StepMatrix &matrix) const {
    return uint64_t(k * k) / 2 * uint64_t(matrix.outputs);
  }
  /// The outputs of `matrix`, or of each expert.
  int64_t outputsOf(const StepMatrix &matrix) const {
    return matrix.outputs / experts;
  }
  /// The moments of the outputs of a row.
  uint64_t outputMomentWork(const StepMatrix &matrix) const {
    return uint64_t(outputsOf(matrix) * outputsOf(matrix)) / 2;
  }
  /// The factors of a matrix's outputs, and what the matrix takes with them.
  uint64_t outputWork(const StepMatrix &matrix) const {
    const auto n = static_cast<uint64_t>(outputsOf(matrix));
    return matrix.hasOutputFactor
               ? uint64_t(experts) * (n * n * n / 3 + n * n / 2 * uint64_t(k))
               : 0;
  }
};

struct CalibrationStep {
  Sublayer sublayer;
  std::vector<StepInput> inputs;
  /// Multiplications of a token in all products of the sublayer.
  uint64_t tokenWork = 0;
  bool hasGradients = false;

  /// Multiplications of a token in the run that keeps rows, and in the backward
  /// pass with its moments.
  uint64_t forwardWork() const { return hasGradients ? tokenWork : 0; }
  uint64_t backwardWork() const;

  /// Multiplications of the step for so many tokens.
  uint64_t work(uint64_t tokens) const;
  /// Bytes of the moments and of the largest factor while it is computed.
  uint64_t bytes() const;
};

struct CalibrationSteps {
  EmbeddingOp embedding;
  /// As far as the last with a matrix to quantize.
  std::vector<CalibrationStep> steps;
  /// What follows them.
  std::vector<Sublayer> rest;
  /// An op that has no backward pass, or null. With it, there are no gradients.
  mlir::Operation *withoutGradient = nullptr;

  explicit CalibrationSteps(const QuantizeInput &input);

  /// All sublayers of the model.
  std::vector<const Sublayer *> chain() const;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_STEPS_H
