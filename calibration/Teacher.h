//===- Teacher.h - What a model in f32 answers ------------------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_TEACHER_H
#define QWEN_CALIBRATION_TEACHER_H

#include "calibration/Student.h"
#include "calibration/TextRun.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// A model before its matrices get integers, with which a student is compared.
class Teacher {
public:
  /// The rows before the head, [tokens][hidden size], of the windows `ids`.
  /// `chain` has the sublayers of `module`. Throws Error.
  static std::vector<float> rowsOf(mlir::ModuleOp module,
                                   const WeightSources &weights,
                                   const SublayerChain &chain,
                                   std::span<const int32_t> ids, int64_t window,
                                   ThreadPool &pool);

  /// Makes the program of `head` with the weight that it has now. `rows` are
  /// the rows before the head, [tokens][hidden size], of windows of a text.
  /// `module`, `weights`, `head` and `pool` must outlive this. Throws Error.
  Teacher(mlir::ModuleOp module, const WeightSources &weights,
          const Sublayer &head, int64_t window, std::vector<float> rows,
          ThreadPool &pool);

  std::span<const float> allRows() const { return rows; }
  /// Returns the logits of `tokens` tokens of a window, from its token `first`
  /// on, in rows of stride() numbers.
  std::span<const float> logits(int64_t number, int64_t first, int64_t tokens);
  size_t stride() const { return static_cast<size_t>(run.headWidth()); }
  /// The mean KL divergence of the last run of `student`, which had these
  /// windows.
  double divergence(Student &student, std::span<const int64_t> windows,
                    unsigned threads);

private:
  const Sublayer &head;
  const int64_t window;
  const std::vector<float> rows;
  TextRun run;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_TEACHER_H
