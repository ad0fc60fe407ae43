//===- WeightFormats.cpp - The formats of weights -------------------------===//

#include "qwen/ABI/WeightFormats.h"

using namespace qwen;

std::string qwen::weightFormatList() {
  std::string text;
  for (WeightFormat format : kWeightFormats) {
    if (!text.empty())
      text += format == std::end(kWeightFormats)[-1] ? " or " : ", ";
    text += weightFormatName(format);
  }
  return text;
}
