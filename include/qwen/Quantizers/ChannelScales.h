//===- ChannelScales.h - Scales of a product's inputs -----------*- C++ -*-===//
//
// AWQ (Lin et al. 2023, arXiv 2306.00978): the weights of channels with large
// inputs are multiplied by scales and the inputs divided by them, so that
// blocks hold them more exactly. Here the inputs are int8, too.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_CHANNELSCALES_H
#define QWEN_QUANTIZERS_CHANNELSCALES_H

#include "qwen/Support/Parallel.h"
#include "qwen/Weights/Turned.h"

#include <span>
#include <vector>

namespace qwen {

/// Matrices [outputs][k] that read the same inputs.
struct ScaledProducts {
  struct Matrix {
    WeightSourcePtr source;
    /// Quantized: its products read int8.
    WeightFormat format;
  };
  std::vector<Matrix> matrices;
  /// [tokens][k]: what they read.
  std::span<const float> inputs;
  /// The number of the scale of each of the k columns. Columns that one output
  /// of another product makes share a scale.
  std::vector<int32_t> scaleOf;
  /// The transform of columns and inputs that is folded in behind the scales.
  Turn turn = {};
};

/// Expands the scales that searchChannelScales returns to one for each column.
std::vector<float> columnScales(std::span<const int32_t> scaleOf,
                                std::span<const float> scales);

/// Scales by which columns of the matrices are multiplied and the outputs that
/// make the inputs are divided, so that rounded matrices make the least error
/// of their outputs; empty if no candidate is better than no scales. A
/// candidate is x^a / w^b of the mean magnitudes x of the inputs and w of the
/// weights, for a of eighths and b either 0 or 1 - a. Throws Error where
/// rounding does. The number of threads changes no bit.
std::vector<float> searchChannelScales(const ScaledProducts &products,
                                       unsigned threads = machineThreads());

} // namespace qwen

#endif // QWEN_QUANTIZERS_CHANNELSCALES_H
