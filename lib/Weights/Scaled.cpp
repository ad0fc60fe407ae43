//===- Scaled.cpp - Scales folded into a weight ---------------------------===//

#include "qwen/Weights/Sources.h"

using namespace qwen;

namespace {
class ScaledSource final : public ComputedSource {
public:
  ScaledSource(WeightSourcePtr from, ChannelScales scales)
      : ComputedSource(std::move(from)), scales(std::move(scales)) {}

  void read(int64_t first, int64_t count, float *values) const override {
    source->read(first, count, values);
    const int64_t k = shape().k();
    for (int64_t i = 0; i < count; ++i, values += k) {
      if (!scales.columns.empty())
        for (int64_t j = 0; j < k; ++j)
          values[j] *= scales.columns[static_cast<size_t>(j)];
      if (!scales.outputs.empty())
        for (int64_t j = 0; j < k; ++j)
          values[j] /= scales.outputs[static_cast<size_t>(first + i)];
    }
  }

private:
  const ChannelScales scales;
};
} // namespace

WeightSourcePtr qwen::makeScaled(WeightSourcePtr source, ChannelScales scales) {
  return std::make_shared<ScaledSource>(std::move(source), std::move(scales));
}
