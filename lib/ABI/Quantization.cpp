//===- Quantization.cpp - How the integers of a model were chosen ---------===//

#include "qwen/ABI/Quantization.h"

using namespace qwen;

std::string Quantization::describe() const {
  std::string line = quantizer;
  if (rotated)
    line += ", rotated";
  if (awq)
    line += ", awq";
  if (tokens > 0)
    line += ", " + std::to_string(tokens) +
            " tokens of the text with SHA-256 " + text;
  if (distilled != DistilledScales())
    line += ", scales of " + std::to_string(distilled.steps) +
            " steps of distillation over " + std::to_string(distilled.tokens) +
            " tokens";
  return line;
}
