//===- TensorChecks.cpp - Checks of the tensors of a weight ---------------===//

#include "TensorChecks.h"

#include "qwen/Numerics/Stored.h"

#include <algorithm>

using namespace qwen;

void qwen::requireType(const StoredTensor &tensor, std::string_view dtype) {
  if (tensor.typeName != dtype)
    throw Error(describeTensor(tensor) + " has dtype " +
                part::found(tensor.typeName) + " when " +
                part::needed(std::string(dtype)) + " is needed");
}

void qwen::requireMatrix(const StoredTensor &tensor, std::string_view dtype) {
  requireType(tensor, dtype);
  if (tensor.shape.size() != 2 || tensor.bytes.empty())
    throw Error(describeTensor(tensor) + " has shape " +
                part::found(shapeText(tensor.shape)) + " when " +
                part::needed("a matrix") + " is needed");
}

void qwen::requireFloats(const StoredTensor &tensor) {
  if (!tensor.type || isBlocks(*tensor.type))
    throw Error(describeTensor(tensor) + " has dtype " +
                part::found(tensor.typeName) + " when " +
                part::needed("F32, F16 or BF16") + " is needed");
}

void qwen::requireShape(const StoredTensor &tensor,
                        std::initializer_list<int64_t> sizes) {
  if (!std::ranges::equal(tensor.shape, sizes))
    throw Error(describeTensor(tensor) + " has shape " +
                part::found(shapeText(tensor.shape)) + " when " +
                part::needed(shapeText(std::vector<int64_t>(sizes))) +
                " is needed");
}

int64_t qwen::groupSizeOf(const StoredTensor &tensor, int64_t group,
                          int64_t k) {
  if (group == -1)
    return k;
  if (k % group != 0)
    throw Error(
        describeTensor(tensor) + " has " + part::found(k) + " columns when " +
        part::needed("a multiple of the group size, " + std::to_string(group)) +
        ", is needed");
  return group;
}

std::vector<int32_t> qwen::readGroups(const StoredTensor &tensor, int64_t k,
                                      int64_t groups) {
  requireType(tensor, "I32");
  requireShape(tensor, {k});
  std::vector<int32_t> result(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    const auto group = static_cast<int32_t>(wordAt(tensor.bytes, i));
    if (group < 0 || group >= groups)
      throw Error(describeTensor(tensor) + " has the group " +
                  part::found(group) + " when " +
                  part::needed("0 to " + std::to_string(groups - 1)) +
                  " are there");
    result[static_cast<size_t>(i)] = group;
  }
  return result;
}

uint64_t qwen::storedBytesOf(WeightTensors tensors) {
  uint64_t bytes = 0;
  for (const StoredTensor *tensor : tensors)
    bytes += tensor ? tensor->bytes.size() : 0;
  return bytes;
}

int64_t qwen::parseGroupSize(const JsonValue &value) {
  const int64_t group = value.integer(-1, int64_t{1} << 30);
  if (group == 0)
    value.fail("-1 or a positive integer");
  return group;
}

void qwen::passOver(const JsonValue &config,
                    std::span<const char *const> keys) {
  for (const char *key : keys)
    config.find(key);
}

void qwen::readFloats(const StoredTensor &tensor, int64_t index, int64_t count,
                      float *to) {
  const StoredType type = *tensor.type;
  numerics::dequantize(type, tensor.bytes.data() + storedBytes(type, index),
                       count, to);
}
