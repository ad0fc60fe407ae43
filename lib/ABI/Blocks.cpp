//===- Blocks.cpp - Block formats and packed layouts ----------------------===//

#include "qwen/ABI/Blocks.h"

using namespace qwen;

std::string_view qwen::kvFormatName(KvFormat format) {
  return format == KvFormat::F32 ? "f32" : "f16";
}

std::optional<KvFormat> qwen::parseKvFormat(std::string_view name) {
  for (KvFormat format : {KvFormat::F32, KvFormat::F16})
    if (name == kvFormatName(format))
      return format;
  return std::nullopt;
}
