//===- Shifted.cpp - Updates of whole groups of integers ------------------===//
//
// Xu et al., "QA-LoRA: Quantization-Aware Low-Rank Adaptation of Large Language
// Models", 2023, section 3.3.
//
//===----------------------------------------------------------------------===//

#include "Shifted.h"

#include "qwen/Numerics/Float16.h"

#include <algorithm>

using namespace qwen;

namespace qwen {
class ShiftedSource final : public GroupedSource {
public:
  ShiftedSource(std::shared_ptr<const GroupedSource> from, LowRankUpdate change)
      : GroupedSource(*from, ruleOf(*from), " + QA-LoRA", change.bytes()),
        source(std::move(from)), update(std::move(change)) {}

  void read(int64_t first, int64_t count, float *values) const override;
  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override;

private:
  static GroupRule ruleOf(const GroupedSource &source) {
    return source.grouping.rule == GroupRule::Symmetric ? GroupRule::Zero
                                                        : source.grouping.rule;
  }

  void readCodes(int64_t first, int64_t count, uint8_t *codes) const override {
    source->readCodes(first, count, codes);
  }
  void readNumbers(int64_t first, int64_t count, float *scales,
                   float *offsets) const override;
  /// Calls visit(i, offset) for the offset of each group before it is rounded.
  template <typename VisitFn>
  void forOffsets(int64_t first, int64_t count, float *scales, float *offsets,
                  VisitFn visit) const;

  const std::shared_ptr<const GroupedSource> source;
  const LowRankUpdate update;
};
} // namespace qwen

template <typename VisitFn>
void ShiftedSource::forOffsets(int64_t first, int64_t count, float *scales,
                               float *offsets, VisitFn visit) const {
  const int64_t groups = shape().k() / grouping.group;
  const auto size = static_cast<size_t>(count * groups);
  const bool hasOffsets = source->grouping.rule != GroupRule::Symmetric;
  if (!hasOffsets)
    std::fill_n(offsets, size, static_cast<float>(grouping.middle()));
  source->readNumbers(first, count, scales, hasOffsets ? offsets : nullptr);
  const std::vector<double> products = update.products(first, count);
  const auto together = static_cast<size_t>(update.group / grouping.group);
  for (size_t i = 0; i < size; ++i) {
    const double product = products[i / together];
    visit(i, grouping.rule == GroupRule::Minimum
                 ? offsets[i] + product
                 : offsets[i] - product / scales[i]);
  }
}

void ShiftedSource::readNumbers(int64_t first, int64_t count, float *scales,
                                float *offsets) const {
  forOffsets(first, count, scales, offsets, [&](size_t i, double offset) {
    offsets[i] = f16ToF32(f32ToF16(static_cast<float>(offset)));
  });
}

void ShiftedSource::read(int64_t first, int64_t count, float *values) const {
  source->read(first, count, values);
  const std::vector<double> products = update.products(first, count);
  for (double product : products)
    for (int64_t i = 0; i < update.group; ++i, ++values)
      *values = static_cast<float>(*values + product);
}

numerics::EncodeError ShiftedSource::keep(WeightFormat format, int64_t first,
                                          OutputSet outputs, int64_t lane,
                                          uint8_t *panel) const {
  numerics::EncodeError error =
      GroupedSource::keep(format, first, outputs, lane, panel);
  const int64_t k = shape().k();
  const auto groups = static_cast<size_t>(k / grouping.group);
  std::vector<float> scales(groups), offsets(groups);
  std::vector<float> values(static_cast<size_t>(k));
  for (int64_t i = 0; outputs >> i != 0; ++i) {
    if ((outputs >> i & 1) == 0)
      continue;
    forOffsets(first + i, 1, scales.data(), offsets.data(),
               [&](size_t j, double offset) {
                 const double lost =
                     (offset - f16ToF32(f32ToF16(static_cast<float>(offset)))) *
                     (grouping.rule == GroupRule::Minimum ? 1 : scales[j]);
                 error.errors +=
                     static_cast<double>(grouping.group) * lost * lost;
               });
    read(first + i, 1, values.data());
    for (float value : values)
      error.values += double{value} * value;
  }
  return error;
}

WeightSourcePtr qwen::makeShifted(std::shared_ptr<const GroupedSource> source,
                                  LowRankUpdate update) {
  return std::make_shared<ShiftedSource>(std::move(source), std::move(update));
}
