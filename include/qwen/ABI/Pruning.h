//===- Pruning.h - Layers that a model lost ---------------------*- C++ -*-===//
//
// The compiler writes it into the manifest ("pruning" in docs/artifact.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_PRUNING_H
#define QWEN_ABI_PRUNING_H

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

/// By default no layer is removed.
struct Pruning {
  /// "layers", or the name of the method that chose them.
  std::string method = {};
  /// Numbers in the checkpoint, in ascending order.
  std::vector<int64_t> layers = {};

  /// "layers 3, 7 removed (shortgpt)".
  std::string describe() const;
  bool operator==(const Pruning &) const = default;
};

} // namespace qwen

#endif // QWEN_ABI_PRUNING_H
