//===- TensorSource.h - Weights of one tensor -------------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_TENSORSOURCE_H
#define QWEN_LIB_WEIGHTS_TENSORSOURCE_H

#include "qwen/Weights/Forms.h"

namespace qwen {

/// The values of a tensor of a type of StoredTypes.def.
class TensorSource : public WeightSource {
public:
  explicit TensorSource(const StoredTensor &tensor);

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return text; }
  std::string_view form() const override { return storedTypeName(type); }
  uint64_t bytesToRead() const override { return bytes.size(); }
  void read(int64_t first, int64_t count, float *values) const override;
  std::optional<StoredType> floatType() const override {
    return isBlocks(type) ? std::nullopt : std::optional(type);
  }
  WeightFormat keptFormat() const override { return infoOf(type).kept; }

protected:
  /// The bytes of an output and of those behind it.
  const uint8_t *at(int64_t output) const {
    return bytes.data() + storedBytes(type, output * sizes.k());
  }

  const StoredType type;

private:
  const ErrorText text;
  const WeightShape sizes;
  const std::span<const uint8_t> bytes;
};

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_TENSORSOURCE_H
