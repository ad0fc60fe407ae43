//===- Distillation.h - Scales that learn from the model in f32 -*- C++ -*-===//
//
// Behind a calibration, the scales and minimums of its matrices learn what the
// model in f32 answers (docs/decisions/0043-distilled-scales.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_DISTILLATION_H
#define QWEN_CALIBRATION_DISTILLATION_H

#include "calibration/Calibration.h"
#include "calibration/HeldOutWindows.h"
#include "calibration/SavedCalibration.h"
#include "calibration/Teacher.h"
#include "qwen/Gradients/Adam.h"
#include "qwen/Quantizers/LearnedMatrix.h"

#include "llvm/ADT/StringMap.h"

#include <chrono>
#include <memory>
#include <optional>

namespace qwen {

/// The steps of --distill without a number, and the most.
inline constexpr int64_t kDistillSteps = 48, kMostDistillSteps = 10000;
/// The fewest windows of a text.
inline constexpr int64_t kLeastDistillWindows = 2 * kHeldOutWindows;

/// What came out of a distillation.
struct DistillResult {
  /// By default the calibration's scales are kept.
  DistilledScales kept;
  /// Says so, and how the loss changed.
  std::string line;
};

/// One distillation: before its calibration there is an object of this, which
/// keeps what the model in f32 says.
class Distillation {
public:
  /// `input`, `text` and `options` must outlive this; of the options, memory
  /// has no effect. Throws Error if an op of the model has no backward pass or
  /// the text is too short.
  Distillation(const QuantizeInput &input, const CalibrationText &text,
               int64_t steps, const CalibrationOptions &options);
  ~Distillation();

  /// Keeps the rows before the head, [tokens][hidden size], of the windows that
  /// choose integers, and what the model answers to the other windows. Weights
  /// still have their floats (CalibrationOptions::lastRows).
  void keepTeacher(std::span<const float> rows);

  /// Changes the scales of the matrices of `input` that have integers, and
  /// replaces their sources: never for more loss on the windows that are held
  /// out. The same input gives the same numbers, whatever the options are, also
  /// if a run goes on where another one was killed. Throws Error if the disk is
  /// full.
  DistillResult run();

private:
  struct Matrix {
    std::string name;
    std::shared_ptr<LearnedMatrix> source;
    /// The place of its numbers among all.
    size_t first;
  };

  /// The weight of a norm, whose values are its numbers.
  struct Norm {
    std::string name;
    std::shared_ptr<Owned> source;
    size_t first;

    std::span<float> values() const {
      return {source->floats(), static_cast<size_t>(source->shape().values())};
    }
  };

  void note(const std::string &line) const;
  void advance(uint64_t tokens);
  /// Tokens that have run forward when all is done: a step goes back, too.
  uint64_t totalWork() const;

  void collectMatrices();
  void collectNorms();
  uint64_t hashOfState() const;
  /// What is saved: the numbers, what Adam has, the best numbers, and the
  /// losses.
  std::vector<float> stateOf();
  /// Takes over what a killed run has done. Returns the number of its steps.
  int64_t resume();

  /// Lets the matrices have these numbers.
  void show(std::span<const float> numbers);
  /// The loss on the windows that are held out, with numbers in f16.
  float measure();
  void keepBest(int64_t step);
  /// Takes a step. Returns false if a gradient is not finite.
  bool takeStep(int64_t step);
  void addGradient(std::span<const float> rows, const ProductGradient &product);
  void addEmbedding(std::span<const int32_t> ids,
                    std::span<const float> slopes);
  /// Takes the steps from `first` on.
  void learn(int64_t first);

  const QuantizeInput &input;
  const CalibrationText &text;
  const CalibrationOptions &options;
  const int64_t steps;
  /// Steps that have read all windows that choose integers read others.
  const DividedText windows;
  const SublayerChain chain;
  ThreadPool pool;
  std::optional<Teacher> teacher;
  std::optional<Student> student;

  std::vector<Matrix> matrices;
  llvm::StringMap<size_t> matrixOf;
  std::vector<Norm> norms;
  /// Values of all matrices and then of all norms: the numbers that learn, the
  /// numbers that the weights have now, the best numbers so far, and the
  /// gradient. The best numbers of matrices are rounded to f16.
  std::vector<float> numbers, shown, best, gradient;
  std::optional<Adam> adam;
  float firstLoss = 0, bestLoss = 0;
  int64_t bestStep = 0;
  std::optional<SavedCalibration> saved;
  uint64_t done = 0;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_DISTILLATION_H
