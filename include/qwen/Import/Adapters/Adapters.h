//===- Adapters.h - Adapters that are merged into a model -------*- C++ -*-===//
//
// An adapter has low-rank updates of matrices (LoRA), and perhaps whole tensors
// in the place of the model's. Its kinds are rows of Adapters.def.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_ADAPTERS_ADAPTERS_H
#define QWEN_IMPORT_ADAPTERS_ADAPTERS_H

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include <filesystem>

namespace qwen {

/// The greatest scale of an adapter, by magnitude.
inline constexpr double kMostAdapterScale = 1e9;

/// An adapter of a compile.
struct AdapterOption {
  /// A folder or a GGUF file.
  std::filesystem::path path;
  /// What its updates are multiplied with, besides the adapter's own factor.
  double scale = 1;
};

/// Merges an adapter into the weights of `model` (AdaptFn) and adds a note.
/// Returns the files that the weights read then. Throws Error, which names file
/// and tensor or key, if the adapter is invalid, has tensors for no module of
/// the model, or needs what is not supported.
StoredTensors mergeAdapter(const AdapterOption &option, ModelConfig &model,
                           WeightSources &weights);

} // namespace qwen

#endif // QWEN_IMPORT_ADAPTERS_ADAPTERS_H
