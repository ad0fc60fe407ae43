//===- KvFormats.h - The formats of the KV cache as data --------*- C++ -*-===//
//
// KvFormats.def expanded into enumerators and facts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KVFORMATS_H
#define QWEN_ABI_KVFORMATS_H

#include "qwen/ABI/KvLayout.h"
#include "qwen/Support/Named.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Number formats of the KV cache.
enum class KvFormat : uint8_t {
#define QWEN_KV_FORMAT(Id, ...) Id,
#include "qwen/ABI/KvFormats.def"
};
inline constexpr KvFormat kKvFormats[] = {
#define QWEN_KV_FORMAT(Id, ...) KvFormat::Id,
#include "qwen/ABI/KvFormats.def"
};

/// A row of KvFormats.def.
struct KvFormatInfo {
  std::string_view name;
  KvLayout layout;
  /// Whether finite keys and values can be too large for the format.
  bool overflows;
  std::string_view help;
};
inline constexpr KvFormatInfo kKvFormatInfos[] = {
#define QWEN_KV_FORMAT(Id, Name, Codes, CodeBits, ScaleBytes, HasOffset,       \
                       Overflows, Help)                                        \
  {#Name, {CodeBits, ScaleBytes, HasOffset}, Overflows, Help},
#include "qwen/ABI/KvFormats.def"
};
constexpr const KvFormatInfo &infoOf(KvFormat format) {
  return kKvFormatInfos[static_cast<size_t>(format)];
}

constexpr std::string_view kvFormatName(KvFormat format) {
  return infoOf(format).name;
}
constexpr const KvLayout &layoutOf(KvFormat format) {
  return infoOf(format).layout;
}

/// The names of all formats, for errors: "f32 or f16".
std::string kvFormatList();

constexpr std::optional<KvFormat> parseKvFormat(std::string_view name) {
  return findNamed(kKvFormats, name,
                   [](KvFormat format) { return infoOf(format).name; });
}

} // namespace qwen

#endif // QWEN_ABI_KVFORMATS_H
