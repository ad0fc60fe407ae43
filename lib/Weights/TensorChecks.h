//===- TensorChecks.h - Checks of the tensors of a weight -------*- C++ -*-===//
//
// What a form relies on, because files may be damaged or hostile.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_WEIGHTS_TENSORCHECKS_H
#define QWEN_LIB_WEIGHTS_TENSORCHECKS_H

#include "qwen/Weights/Forms.h"

#include <cstring>
#include <string_view>

namespace qwen {

/// Throws Error unless `tensor` has the type that its file calls `dtype`.
void requireType(const StoredTensor &tensor, std::string_view dtype);

/// Throws Error unless `tensor` is a matrix of that type with at least one row
/// and column.
void requireMatrix(const StoredTensor &tensor, std::string_view dtype);

/// Throws Error unless the values of `tensor` are floats.
void requireFloats(const StoredTensor &tensor);

/// Throws Error unless `tensor` has these sizes.
void requireShape(const StoredTensor &tensor,
                  std::initializer_list<int64_t> sizes);

/// The columns of a group: `group`, or all `k` if it is -1. Throws Error, which
/// names `tensor`, unless it divides `k`.
int64_t groupSizeOf(const StoredTensor &tensor, int64_t group, int64_t k);

/// The groups of `k` columns in `tensor`. Throws Error unless it has as many
/// I32, from 0 to groups - 1.
std::vector<int32_t> readGroups(const StoredTensor &tensor, int64_t k,
                                int64_t groups);

/// The bytes of all tensors of a weight.
uint64_t storedBytesOf(WeightTensors tensors);

/// The size of a group in a configuration: a positive integer, or -1 for all
/// columns.
int64_t parseGroupSize(const JsonValue &value);

/// Counts keys of a configuration as read: they change no value.
void passOver(const JsonValue &config, std::span<const char *const> keys);

/// The 32-bit integer `index` of the bytes of a tensor.
inline uint32_t wordAt(std::span<const uint8_t> bytes, int64_t index) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + index * 4, sizeof(word));
  return word;
}

/// Reads `count` floats of a tensor of floats from its value `index` on.
void readFloats(const StoredTensor &tensor, int64_t index, int64_t count,
                float *to);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_TENSORCHECKS_H
