//===- OverflowingGradients.h - Gradients that are not finite ---*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_OVERFLOWINGGRADIENTS_H
#define QWEN_TEST_UNIT_OVERFLOWINGGRADIENTS_H

#include "qwen/Compiler/Compiler.h"
#include "qwen/Weights/Owned.h"

#include <memory>
#include <string>
#include <vector>

namespace qwen::test {

/// Multiplies the values of a weight.
inline void scaleWeight(const QuantizeInput &input, const std::string &name,
                        float factor) {
  const WeightSourcePtr source = input.source(name);
  const int64_t outputs = source->shape().outputs();
  std::vector<float> values(static_cast<size_t>(source->shape().values()));
  source->read(0, outputs, values.data());
  for (float &value : values)
    value *= factor;
  auto scaled =
      std::make_shared<Owned>("scaled", source->shape(), Place::Memory);
  scaled->set(0, outputs, values.data());
  input.replaceValues(name, scaled);
}

/// Makes what `first` computes tiny, and lets the product `second` make up for
/// it: the model computes what it did, but the gradient between them overflows.
/// Neither is quantized.
inline void overflowGradients(QuantizeInput &input, const std::string &first,
                              const std::string &second) {
  scaleWeight(input, first, 0x1p-129f);
  scaleWeight(input, second, 0x1p+64f);
  scaleWeight(input, second, 0x1p+65f);
  input.formats.erase(first);
  input.formats.erase(second);
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_OVERFLOWINGGRADIENTS_H
