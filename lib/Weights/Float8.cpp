//===- Float8.cpp - Matrices of F8_E4M3 -----------------------------------===//

#include "Float8.h"

#include "TensorChecks.h"

#include "qwen/Numerics/SmallFloats.h"

#include <algorithm>
#include <array>

using namespace qwen;

static std::span<const int64_t> withoutOnes(std::span<const int64_t> sizes) {
  while (!sizes.empty() && sizes.back() == 1)
    sizes = sizes.first(sizes.size() - 1);
  return sizes;
}

void qwen::requireScales(const StoredTensor &scales, const ScaleBlock &block,
                         const WeightShape &shape) {
  const int64_t sizes[] = {
      block.outputs == 0 ? 1 : ceilDiv(shape.outputs(), block.outputs),
      block.columns == 0 ? 1 : ceilDiv(shape.k(), block.columns)};
  requireFloats(scales);
  if (!std::ranges::equal(withoutOnes(scales.shape), withoutOnes(sizes)))
    requireShape(scales, {sizes[0], sizes[1]});
}

ScaleBlock qwen::readScaleBlock(const JsonValue &value) {
  const std::vector<JsonValue> sizes =
      value.isArray() ? value.elements() : std::vector<JsonValue>();
  if (sizes.size() != 2)
    value.fail("an array of two sizes");
  static constexpr int64_t kMost = INT32_MAX;
  return {sizes[0].integer(1, kMost), sizes[1].integer(1, kMost)};
}

static constexpr std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = e4m3ToF32(static_cast<uint8_t>(i));
  return values;
}();

namespace {
class Float8Source final : public WeightSource {
public:
  Float8Source(const StoredTensor &weight, const StoredTensor &scaleTensor,
               const ScaleBlock &block, std::string_view form)
      : text(describeTensor(weight)), sizes{weight.shape}, formName(form),
        values(weight), scales(scaleTensor),
        outputs(block.outputs == 0 ? sizes.outputs() : block.outputs),
        columns(block.columns == 0 ? sizes.k() : block.columns) {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return text; }
  std::string_view form() const override { return formName; }
  uint64_t bytesToRead() const override {
    return values.bytes.size() + scales.bytes.size();
  }
  WeightFormat keptFormat() const override { return WeightFormat::Q8_0; }

  void read(int64_t first, int64_t count, float *to) const override {
    const int64_t k = sizes.k(), blocks = ceilDiv(k, columns);
    std::vector<float> row(static_cast<size_t>(blocks));
    for (int64_t i = first; i < first + count; ++i, to += k) {
      readFloats(scales, i / outputs * blocks, blocks, row.data());
      for (int64_t begin = 0; begin < k; begin += columns) {
        const float scale = row[static_cast<size_t>(begin / columns)];
        const uint8_t *from = values.bytes.data() + i * k;
        for (int64_t j = begin; j < std::min(k, begin + columns); ++j)
          to[j] = kE4M3Values[from[j]] * scale;
      }
    }
  }

private:
  const ErrorText text;
  const WeightShape sizes;
  const std::string_view formName;
  const StoredTensor values, scales;
  /// The size of a block.
  const int64_t outputs, columns;
};
} // namespace

WeightSourcePtr qwen::makeFloat8(const StoredTensor &weight,
                                 const StoredTensor &scales, ScaleBlock block,
                                 std::string_view form) {
  requireMatrix(weight, "F8_E4M3");
  requireScales(scales, block, {weight.shape});
  return std::make_shared<Float8Source>(weight, scales, block, form);
}
