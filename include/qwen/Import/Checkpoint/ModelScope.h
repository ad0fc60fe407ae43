//===- ModelScope.h - Where a program's weights and ops stand ---*- C++ -*-===//

#ifndef QWEN_IMPORT_CHECKPOINT_MODELSCOPE_H
#define QWEN_IMPORT_CHECKPOINT_MODELSCOPE_H

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

/// What the names of weights begin with: the text model's layers, its other
/// modules, and layers inside any scope.
inline constexpr std::string_view kTextLayers = "model.layers.";
inline constexpr std::string_view kTextModel =
    kTextLayers.substr(0, kTextLayers.find('.') + 1);
inline constexpr std::string_view kLayers =
    kTextLayers.substr(kTextModel.size());

/// The path in its scope of a head of some tokens (Checkpoint::trimHead).
inline constexpr std::string_view kTrimmedHead = "lm_head.weight";

/// The prefixes of the names of a program's weights and ops. The default is the
/// text model of a checkpoint. The characters must outlive the scope.
struct ModelScope {
  /// Begins the names of the program's modules, such as layers and norms; empty
  /// or ends with a dot: "model.", or "draft.model." of a text model in the
  /// module "draft".
  std::string_view tensors = kTextModel;
  /// Begins the names of ops: "", or "draft.".
  std::string_view ops = {};
  /// Begins the name of the embedding, if that is another scope's.
  std::string_view embeddingTensors = {};

  bool operator==(const ModelScope &) const = default;

  /// The weight or module `path` of the scope: "model.norm.weight" for
  /// "norm.weight".
  std::string weight(std::string_view path) const {
    return std::string(tensors).append(path);
  }

  /// The weight or module `path` beside the scope's: "lm_head.weight",
  /// or "draft.lm_head.weight" for the tensors "draft.model.".
  std::string beside(std::string_view path) const {
    const std::string_view module = tensors.substr(0, tensors.rfind('.'));
    return std::string(module.substr(0, module.rfind('.') + 1)).append(path);
  }

  /// The weight of the embedding.
  std::string embedding() const {
    return std::string(embeddingTensors.empty() ? tensors : embeddingTensors)
        .append("embed_tokens.weight");
  }

  /// The op `path` of the scope.
  std::string op(std::string_view path) const {
    return std::string(ops).append(path);
  }

  /// What the names of the weights of layer `layer` begin with:
  /// "model.layers.3.".
  std::string layer(int64_t layer) const {
    return weight(layerPath(layer)).append(".");
  }

  /// The path of layer `layer` inside the scope: "layers.3".
  static std::string layerPath(int64_t layer) {
    return std::string(kLayers).append(std::to_string(layer));
  }
};

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_MODELSCOPE_H
