//===- TensorSource.cpp - Weights of one tensor ---------------------------===//

#include "TensorSource.h"

#include "qwen/Numerics/Stored.h"

using namespace qwen;

ErrorText qwen::describeTensor(const StoredTensor &tensor) {
  return part::file(tensor.path) + ": " + part::tensor(tensor.name);
}

TensorSource::TensorSource(const StoredTensor &tensor)
    : type(*tensor.type), text(describeTensor(tensor)), sizes{tensor.shape},
      bytes(tensor.bytes) {}

void TensorSource::read(int64_t first, int64_t count, float *values) const {
  numerics::dequantize(type, at(first), count * sizes.k(), values);
}
