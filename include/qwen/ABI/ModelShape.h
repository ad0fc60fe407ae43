//===- ModelShape.h - Sizes of a model --------------------------*- C++ -*-===//
//
// The importer reads these facts from config.json; the manifest stores them
// ("model" in docs/artifact.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_MODELSHAPE_H
#define QWEN_ABI_MODELSHAPE_H

#include <cstdint>

namespace qwen {

/// The sizes and constants of a decoder. kvHeads divides heads; hiddenSize,
/// heads * headDim and intermediateSize are multiples of kGroup; headDim is a
/// multiple of 8 from 16 to 256.
struct ModelShape {
  /// Number of ids of the embedding and of logits of a token.
  int64_t vocabSize;
  int64_t hiddenSize;
  int64_t layers;
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t intermediateSize;
  double ropeTheta;
  double rmsNormEps;
  /// Whether the embedding is also the matrix of lm_head.
  bool tied;
};

} // namespace qwen

#endif // QWEN_ABI_MODELSHAPE_H
