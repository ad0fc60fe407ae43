//===- Adapter.h - What the readers of adapters give ------------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_ADAPTERS_ADAPTER_H
#define QWEN_LIB_IMPORT_ADAPTERS_ADAPTER_H

#include "qwen/Import/Adapters/Adapters.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// What a tensor is to its module (LowRankUpdate). Bias is an update of the
/// module's bias, times the same scale.
enum class TensorRole : uint8_t { Left, Right, Norms, Bias };
inline constexpr size_t kTensorRoles = 4;

/// How the names of tensors of a role end, behind the name of their module.
struct RoleName {
  std::string_view suffix;
  TensorRole role;
  /// Whether the module is the embedding of tokens.
  bool isEmbedding = false;
  /// Whether the tensor has the columns of the factor in the place of its rows.
  bool isTransposed = false;
};

/// An adapter, as the reader of its kind gives it.
struct Adapter {
  explicit Adapter(const std::filesystem::path &dir) : files(dir) {}

  /// Keeps the tensors mapped.
  StoredTensors files;
  std::vector<StoredTensor> tensors;
  /// A name with none of these endings names a whole tensor.
  std::span<const RoleName> roles;
  /// Whether a name of no role may name a whole tensor.
  bool hasWholeTensors = true;
  /// Removes the name of the adapter from the name of a tensor, if it may be
  /// there.
  std::function<std::string(const std::string &name)> plainName;
  /// The name in the model of the tensor or module that the adapter calls so.
  std::function<std::string(const std::string &name)> modelName;
  /// The factor of the update of the module that the adapter calls `module`.
  std::function<double(const std::string &module, int64_t rank)> scale;
  /// Columns whose mean, times K / pool, is an input of the update (QA-LoRA as
  /// PEFT has it), or 0.
  int64_t pool = 0;
  /// Whether the mean of each group of the base is an input where the update
  /// has as many columns (QA-LoRA as the paper has it).
  bool poolsGroups = false;
  /// Whether each update has norms (DoRA).
  bool hasNorms = false;
  /// Whether its values have the order of GGUF files.
  bool isGguf = false;
  /// Keys of its configuration that nobody knows.
  std::vector<std::string> unknownKeys;
};

// read<Kind>(path, model): the adapter of this kind at `path`, a folder or a
// file. Throws Error.
#define QWEN_ADAPTER(Kind, ...)                                                \
  Adapter read##Kind(const std::filesystem::path &path,                        \
                     const ModelConfig &model);
#include "qwen/Import/Adapters/Adapters.def"

/// Throws Error unless `tensor` has this shape and finite floats.
void checkFactor(const StoredTensor &tensor, const WeightShape &needed);

/// The name of an adapter's JSON file in its folder.
inline constexpr char kAdapterConfig[] = "adapter_config.json";

} // namespace qwen

#endif // QWEN_LIB_IMPORT_ADAPTERS_ADAPTER_H
