//===- ElementMaps.h - Functions of one value as data -----------*- C++ -*-===//
//
// ElementMaps.def expanded into enumerators and facts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_ELEMENTMAPS_H
#define QWEN_ABI_ELEMENTMAPS_H

#include "qwen/ABI/KernelOps.h"
#include "qwen/Support/Named.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen {

/// A function of one value.
enum class ElementMap : uint8_t {
#define QWEN_ELEMENT_MAP(Map, ...) Map,
#include "qwen/ABI/ElementMaps.def"
};
inline constexpr ElementMap kElementMaps[] = {
#define QWEN_ELEMENT_MAP(Map, ...) ElementMap::Map,
#include "qwen/ABI/ElementMaps.def"
};

/// A row of ElementMaps.def, and its kind of kernels.
struct ElementMapInfo {
  std::string_view name;
  KernelOp kernel;
};
inline constexpr ElementMapInfo kElementMapInfos[] = {
#define QWEN_ELEMENT_MAP(Map, Name) {#Name, KernelOp::Map},
#include "qwen/ABI/ElementMaps.def"
};
constexpr const ElementMapInfo &infoOf(ElementMap map) {
  return kElementMapInfos[static_cast<size_t>(map)];
}

constexpr std::optional<ElementMap> parseElementMap(std::string_view name) {
  return findNamed(kElementMaps, name,
                   [](ElementMap map) { return infoOf(map).name; });
}

} // namespace qwen

#endif // QWEN_ABI_ELEMENTMAPS_H
