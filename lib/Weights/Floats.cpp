//===- Floats.cpp - Tensors of floats -------------------------------------===//

#include "TensorSource.h"

using namespace qwen;

WeightSourcePtr qwen::makeFloats(WeightTensors tensors) {
  const StoredTensor &tensor = *tensors.front();
  if (!tensor.type || isBlocks(*tensor.type))
    return nullptr;
  return std::make_shared<TensorSource>(tensor);
}
