//===- Ggml.cpp - Matrices of ggml's blocks -------------------------------===//

#include "TensorSource.h"

#include "qwen/Numerics/Encode.h"

using namespace qwen;

namespace {
/// A format that holds the integers and scales of a block holds the output.
class GgmlSource final : public TensorSource {
public:
  using TensorSource::TensorSource;

  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override {
    OutputSet outputs = 0;
    for (int64_t i = 0; i < count; ++i)
      if (numerics::canKeep(format, type, at(first + i), shape().k()))
        outputs |= OutputSet{1} << i;
    return outputs;
  }

  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override {
    for (int64_t i = 0; outputs >> i != 0; ++i)
      if ((outputs >> i & 1) != 0)
        numerics::keepOutput(format, type, at(first + i), shape().k(), lane + i,
                             panel);
    return {};
  }
};

/// All but vectors, whose values are no whole blocks.
class GgmlForm final : public WeightForm {
  WeightSourcePtr make(WeightTensors tensors) const override {
    const StoredTensor &tensor = *tensors.front();
    if (!tensor.type || !isBlocks(*tensor.type) || tensor.shape.size() < 2)
      return nullptr;
    return std::make_shared<GgmlSource>(tensor);
  }
};
} // namespace

std::unique_ptr<const WeightForm> qwen::makeGgmlForm(const JsonValue &) {
  return std::make_unique<GgmlForm>();
}
