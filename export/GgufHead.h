//===- GgufHead.h - What precedes the tensors of a GGUF file ----*- C++ -*-===//
//
// The reverse of qwen/Import/Checkpoint/Gguf.h.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_EXPORT_GGUFHEAD_H
#define QWEN_EXPORT_GGUFHEAD_H

#include "qwen/ABI/StoredTypes.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qwen {

/// Collects the keys of a file of version 3 and the entries of its tensors.
class GgufHead {
public:
  void addText(std::string_view key, std::string_view value);
  void addInteger(std::string_view key, uint32_t value);
  void addNumber(std::string_view key, float value);
  void addFlag(std::string_view key, bool value);
  void addTexts(std::string_view key, std::span<const std::string> values);
  void addIntegers(std::string_view key, std::span<const int32_t> values);

  /// Adds a tensor of this shape, outputs first. Returns the offset of its
  /// bytes behind the head.
  uint64_t addTensor(std::string_view name, StoredType type,
                     std::span<const int64_t> shape);

  /// The bytes before the tensors.
  std::string make() const;
  /// Bytes of the tensors, with what aligns the end.
  uint64_t tensorBytes() const { return dataEnd; }

private:
  std::string keys, tensors;
  uint64_t keyCount = 0, tensorCount = 0, dataEnd = 0;
};

} // namespace qwen

#endif // QWEN_EXPORT_GGUFHEAD_H
