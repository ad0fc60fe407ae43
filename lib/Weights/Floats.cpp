//===- Floats.cpp - Tensors of floats -------------------------------------===//

#include "TensorSource.h"

using namespace qwen;

namespace {
class FloatsForm final : public WeightForm {
  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &tensor = *tensors.front();
    if (!tensor.type || isBlocks(*tensor.type))
      return nullptr;
    return std::make_shared<TensorSource>(tensor);
  }
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeFloatsForm(const JsonValue &) {
  return std::make_unique<FloatsForm>();
}
