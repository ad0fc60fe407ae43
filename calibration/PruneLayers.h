//===- PruneLayers.h - Layers that a text can do without --------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_PRUNELAYERS_H
#define QWEN_CALIBRATION_PRUNELAYERS_H

#include "calibration/Calibration.h"

#include <string_view>

namespace qwen {

/// Tokens of the text that pruning runs.
inline constexpr int64_t kPruningTokens = 2048;

/// What the removed layers cost.
struct PruningReport {
  /// Numbers of the removed layers, in ascending order.
  std::vector<int64_t> layers;
  /// The figure of each layer by which the method chose: of shortgpt the
  /// influence, of sleb the loss of the text without it, in nats, when it was
  /// removed; in the order of the layers, and of their removal.
  std::vector<double> scores;
  /// exp of the mean loss of the text with all layers and without these, and
  /// the mean Kullback-Leibler divergence, in nats.
  double perplexityBefore = 0, perplexityAfter = 0, divergence = 0;
};

/// A method that chooses layers.
struct PruningMethod {
  std::string_view name, help;
  /// Chooses `count` layers of a model by a text of at most kPruningTokens
  /// tokens. Throws Error.
  PruningReport (*choose)(const QuantizeInput &input,
                          const CalibrationText &text, int64_t count,
                          const ProgressFn &progress);
};

/// ShortGPT (arXiv 2403.03853): the layers of the least influence go, which is
/// 1 minus the mean cosine of a layer's input and output. Of equals, the lower
/// layer goes.
PruningReport pruneByInfluence(const QuantizeInput &input,
                               const CalibrationText &text, int64_t count,
                               const ProgressFn &progress = {});

/// SLEB (arXiv 2402.09025): one layer after another goes, the one without which
/// the loss is least. Of equals, the lower layer goes.
PruningReport pruneByLoss(const QuantizeInput &input,
                          const CalibrationText &text, int64_t count,
                          const ProgressFn &progress = {});

inline constexpr PruningMethod kPruningMethods[] = {
    {"shortgpt", "the layers whose output is most like their input",
     pruneByInfluence},
    {"sleb", "one after another, the layer without which a text is most likely",
     pruneByLoss}};

} // namespace qwen

#endif // QWEN_CALIBRATION_PRUNELAYERS_H
