//===- Mxfp4.cpp - Matrices of MXFP4 in two tensors -----------------------===//

#include "Mxfp4.h"

#include "Codes.h"
#include "Grouped.h"
#include "TensorChecks.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/SmallFloats.h"

#include <array>
#include <bit>
#include <vector>

using namespace qwen;

/// Columns that share a scale.
static constexpr int64_t kMxfp4Block = 32;

/// The codes of fp4, which ascend, by the codes of E2M1. -0 becomes 0.
static constexpr std::array<uint8_t, 16> kAscending = {
    8, 9, 10, 11, 12, 13, 14, 15, 8, 6, 5, 4, 3, 2, 1, 0};

namespace {
/// The integers are twice the values, so the scales are halves. fp4 keeps codes
/// and scales, if f16 holds the scales; otherwise values are encoded in q8_0.
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

  WeightFormat keptFormat() const override {
    const int64_t count = shape().values() / kMxfp4Block;
    return areHalves(0, count) ? WeightFormat::FP4 : WeightFormat::Q8_0;
  }

  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override {
    if (format != WeightFormat::FP4)
      return GroupedSource::kept(format, first, count);
    const int64_t blocks = shape().k() / kMxfp4Block;
    OutputSet outputs = 0;
    for (int64_t i = 0; i < count; ++i)
      outputs |= OutputSet{areHalves((first + i) * blocks, blocks)} << i;
    return outputs;
  }

  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override {
    if (format != WeightFormat::FP4)
      return GroupedSource::keep(format, first, outputs, lane, panel);
    const int64_t k = shape().k(), blocks = k / kMxfp4Block;
    std::vector<numerics::WeightBlock> output(static_cast<size_t>(blocks));
    for (int64_t i = 0; i < std::bit_width(outputs); ++i) {
      if ((outputs >> i & 1) == 0)
        continue;
      for (int64_t j = 0; j < blocks; ++j) {
        const int64_t block = (first + i) * blocks + j;
        numerics::WeightBlock &to = output[static_cast<size_t>(j)];
        to.scale = f32ToF16(scaleOf(block));
        unpackCodes(codeBytes + block * kMxfp4Block / 2, 4, kMxfp4Block,
                    to.codes);
        for (int64_t value = 0; value < kMxfp4Block; ++value)
          to.codes[value] = kAscending[to.codes[value]];
      }
      numerics::putOutput(format, output.data(), k, lane + i, panel);
    }
    return {};
  }

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
      numbers[i] = scaleOf(first * blocks + i);
  }

private:
  float scaleOf(int64_t block) const { return e8m0ToF32(scales[block]) / 2; }

  /// Whether f16 holds the scales of `count` blocks from `first` on.
  bool areHalves(int64_t first, int64_t count) const {
    for (int64_t i = first; i < first + count; ++i)
      if (f16ToF32(f32ToF16(scaleOf(i))) != scaleOf(i))
        return false;
    return true;
  }

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
