//===- StoredTypes.h - The types of tensors in checkpoints ------*- C++ -*-===//
//
// StoredTypes.def expanded into enumerators and facts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_STOREDTYPES_H
#define QWEN_ABI_STOREDTYPES_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/WeightFormats.h"
#include "qwen/Support/Named.h"

namespace qwen {

/// Types of the values of a tensor in a checkpoint.
enum class StoredType : uint8_t {
#define QWEN_STORED_TYPE(Id, ...) Id,
#include "qwen/ABI/StoredTypes.def"
};
inline constexpr StoredType kStoredTypes[] = {
#define QWEN_STORED_TYPE(Id, ...) StoredType::Id,
#include "qwen/ABI/StoredTypes.def"
};

/// A row of QWEN_STORED_TYPE.
struct StoredTypeInfo {
  std::string_view name;
  uint32_t ggmlType;
  int64_t values;
  int64_t bytes;
  WeightFormat kept;
  bool hasMinimum = false;
  int64_t subBlock = 0;
};
inline constexpr StoredTypeInfo kStoredTypeInfos[] = {
#define QWEN_STORED_TYPE(Id, GgmlType, Values, Bytes, Kept, ...)               \
  {#Id, GgmlType, Values, Bytes, WeightFormat::Kept __VA_OPT__(, ) __VA_ARGS__},
#include "qwen/ABI/StoredTypes.def"
};

constexpr const StoredTypeInfo &infoOf(StoredType type) {
  return kStoredTypeInfos[static_cast<size_t>(type)];
}

/// Whether values are blocks of integers; else they are floats.
constexpr bool isBlocks(StoredType type) { return infoOf(type).values > 1; }

/// The name in files and messages: "BF16", "Q4_K".
constexpr std::string_view storedTypeName(StoredType type) {
  return infoOf(type).name;
}
/// The type of that name, or none.
constexpr std::optional<StoredType> parseStoredType(std::string_view name) {
  return findNamed(kStoredTypes, name, storedTypeName);
}

/// Bytes of `count` values, a multiple of a block.
constexpr int64_t storedBytes(StoredType type, int64_t count) {
  return count / infoOf(type).values * infoOf(type).bytes;
}

/// Whether the blocks of `type` have the same bits as an output of the format
/// that keeps it, in another order.
constexpr bool hasNumbersOfKept(StoredType type) {
  const StoredTypeInfo &info = infoOf(type);
  if (!isQuantized(info.kept))
    return info.bytes * 8 == codingOf(info.kept).bits;
  return info.values == weightBlock(info.kept) &&
         info.bytes * kPanelOutputs == panelBlockBytes(info.kept);
}

/// The type whose blocks hold the values of `format`. It has the same codes and
/// scales, and shorter blocks where scales have to be repeated. A code less a
/// zero point is an integer of Q5_0, if the zero point is one from 0 to 16; the
/// integers of E2M1 are.
constexpr StoredType exportedType(WeightFormat format) {
  if (scalesOf(format).hasZero || infoOf(format).coding == Coding::E2M1)
    return StoredType::Q5_0;
  for (StoredType type : kStoredTypes) {
    const WeightFormatInfo &kept = infoOf(infoOf(type).kept);
    if (hasNumbersOfKept(type) && kept.coding == infoOf(format).coding &&
        kept.scales == infoOf(format).scales)
      return type;
  }
  __builtin_unreachable();
}

/// The names, for errors: "F32, F16, ... or MXFP4".
std::string storedTypeList();

} // namespace qwen

#endif // QWEN_ABI_STOREDTYPES_H
