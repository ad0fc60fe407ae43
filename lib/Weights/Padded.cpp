//===- Padded.cpp - A weight with zeros behind its values -----------------===//

#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <utility>

using namespace qwen;

namespace {
class PaddedSource final : public ForwardingSource {
public:
  PaddedSource(WeightSourcePtr from, WeightShape shape)
      : ForwardingSource(std::move(from)), sizes(std::move(shape)) {}

  const WeightShape &shape() const override { return sizes; }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t k = sizes.k(), own = source->shape().k();
    std::fill_n(values, count * k, 0.0f);
    const int64_t end = std::min(first + count, source->shape().outputs());
    for (int64_t output = first; output < end; ++output, values += k) {
      source->read(output, 1, values);
      std::fill(values + own, values + k, 0.0f);
    }
  }

  bool hasIntegers() const override { return false; }
  OutputSet kept(WeightFormat, int64_t, int64_t) const override { return 0; }
  std::span<const int32_t> columnOrder() const override { return {}; }

private:
  const WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makePadded(WeightSourcePtr source, WeightShape shape) {
  return std::make_shared<PaddedSource>(std::move(source), std::move(shape));
}
