//===- StoredTensor.h - A tensor of a file ----------------------*- C++ -*-===//

#ifndef QWEN_WEIGHTS_STOREDTENSOR_H
#define QWEN_WEIGHTS_STOREDTENSOR_H

#include "qwen/ABI/StoredTypes.h"
#include "qwen/Support/Error.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// A tensor of a file, which is mapped.
struct StoredTensor {
  /// As in the file.
  std::string name;
  /// The path of its file.
  std::string path;
  /// None for a type that is not supported; only unused tensors may have one.
  std::optional<StoredType> type;
  /// The type as the file spells it: "F32", "BF16", "I64", ...
  std::string typeName;
  /// Outermost dimension first. The product of the dimensions fits in int64_t.
  std::vector<int64_t> shape;
  /// Offset of the first byte from the start of the file.
  uint64_t offset;
  /// The values in the mapping of the file: row-major, little-endian, perhaps
  /// not aligned.
  std::span<const uint8_t> bytes;
};

/// Names a tensor in messages: `PATH: tensor "NAME"`.
ErrorText describeTensor(const StoredTensor &tensor);

} // namespace qwen

#endif // QWEN_WEIGHTS_STOREDTENSOR_H
