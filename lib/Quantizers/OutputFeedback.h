//===- OutputFeedback.h - Outputs that make up for each other ---*- C++ -*-===//
//
// With a factor S of the gradients by the outputs beside R of the inputs, the
// errors E of a matrix cost |S^T E R|^2 (LDLQ on both sides; Tseng et al. 2024,
// arXiv 2402.04396, has the inputs' side). The terms of an output, a row of
// E R, make up for the terms of the outputs before it. The sixteen outputs of a
// panel are chosen side by side: they make up for the outputs before the panel,
// not for each other.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_QUANTIZERS_OUTPUTFEEDBACK_H
#define QWEN_LIB_QUANTIZERS_OUTPUTFEEDBACK_H

#include "qwen/Quantizers/InputFactor.h"

#include <atomic>
#include <vector>

namespace qwen {

/// The terms of all outputs, and who waits for them.
class OutputFeedback {
public:
  /// For a matrix of `k` columns, whose outputs are chosen in `groups` groups
  /// that may run at the same time.
  OutputFeedback(const InputFactor &outputs, int64_t k, int64_t groups);

  /// What the terms of the outputs before output `first` of a panel make of its
  /// terms of 16 columns from place `column` on: shares[16 columns][16], from
  /// 0.
  void share(int64_t first, int64_t column, float *shares) const;
  /// Keeps the terms [16 columns][16] of the panel of output `first`, without
  /// its shares.
  void keep(int64_t first, int64_t column, const float *terms);

  /// Waits until the group before has finished so many blocks.
  void await(int64_t group, int64_t blocks) const;
  void finish(int64_t group, int64_t blocks);

private:
  const InputFactor &factor;
  /// [column / 16][output][16].
  std::vector<float> terms;
  /// Blocks that each group has finished.
  std::vector<std::atomic<int64_t>> finished;
};

} // namespace qwen

#endif // QWEN_LIB_QUANTIZERS_OUTPUTFEEDBACK_H
