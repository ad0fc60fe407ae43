//===- Blocks.cpp - Block formats and packed layouts ----------------------===//

#include "qwen/ABI/Blocks.h"

using namespace qwen;

std::string_view qwen::weightFormatName(WeightFormat format) {
  return format == WeightFormat::F32 ? "f32" : "q4_0";
}

std::optional<WeightFormat> qwen::parseWeightFormat(std::string_view name) {
  for (WeightFormat format : {WeightFormat::F32, WeightFormat::Q4_0})
    if (name == weightFormatName(format))
      return format;
  return std::nullopt;
}

std::string_view qwen::kvFormatName(KvFormat format) {
  return format == KvFormat::F32 ? "f32" : "f16";
}

std::optional<KvFormat> qwen::parseKvFormat(std::string_view name) {
  for (KvFormat format : {KvFormat::F32, KvFormat::F16})
    if (name == kvFormatName(format))
      return format;
  return std::nullopt;
}

int64_t qwen::panelBytes(WeightFormat format, int64_t k) {
  if (format == WeightFormat::F32)
    return k * kPanelRows * 4;
  return k / kGroup * kPanelRows * static_cast<int64_t>(sizeof(BlockQ4_0));
}
