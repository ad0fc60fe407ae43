//===- Mxfp4.cpp - Matrices of MXFP4 in two tensors -----------------------===//

#include "Mxfp4.h"

#include "Codes.h"
#include "Grouped.h"
#include "TensorChecks.h"

#include "qwen/Numerics/SmallFloats.h"

using namespace qwen;

/// Columns that share a scale.
static constexpr int64_t kMxfp4Block = 32;
namespace {
/// The integers are twice the values, so the scales are halves.
class Mxfp4Source final : public GroupedSource {
public:
  Mxfp4Source(const StoredTensor &codeTensor, const StoredTensor &scaleTensor,
              const WeightShape &shape, std::string_view form)
      : GroupedSource(codeTensor, form, shape,
                      codeTensor.bytes.size() + scaleTensor.bytes.size(),
                      {8, kMxfp4Block, GroupRule::Symmetric}),
        formName(form), codeBytes(codeTensor.bytes.data()),
        scales(scaleTensor.bytes.data()) {}

  std::string_view form() const override { return formName; }

protected:
  void readCodes(int64_t first, int64_t count, uint8_t *codes) const override {
    const int64_t k = shape().k();
    unpackCodes(codeBytes + first * k / 2, 4, count * k, codes);
    for (int64_t i = 0; i < count * k; ++i)
      codes[i] =
          static_cast<uint8_t>(kE2M1Doubled[codes[i]] + grouping.middle());
  }

  void readNumbers(int64_t first, int64_t count, float *numbers,
                   float *) const override {
    const int64_t blocks = shape().k() / kMxfp4Block;
    for (int64_t i = 0; i < count * blocks; ++i)
      numbers[i] = e8m0ToF32(scales[first * blocks + i]) / 2;
  }

private:
  const std::string_view formName;
  const uint8_t *const codeBytes;
  const uint8_t *const scales;
};
} // namespace

WeightSourcePtr qwen::makeMxfp4(const StoredTensor &codes,
                                const StoredTensor &scales,
                                const WeightShape &shape,
                                std::string_view form) {
  if (shape.k() % kMxfp4Block != 0)
    throw Error(describeTensor(codes) + " has " + part::found(shape.k()) +
                " columns when " + part::needed("a multiple of 32") +
                " is needed");
  requireType(scales, "U8");
  requireShape(scales, {shape.outputs(), shape.k() / kMxfp4Block});
  return std::make_shared<Mxfp4Source>(codes, scales, shape, form);
}
