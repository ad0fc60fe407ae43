//===- Columns.cpp - Some columns of a weight -----------------------------===//

#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <vector>

using namespace qwen;

namespace {
class ColumnsSource final : public ForwardingSource {
public:
  ColumnsSource(WeightSourcePtr from, int64_t first, int64_t count)
      : ForwardingSource(std::move(from)), begin(first),
        sizes{{source->shape().outputs(), count}} {}

  const WeightShape &shape() const override { return sizes; }
  uint64_t bytesToRead() const override {
    const auto all = static_cast<uint64_t>(source->shape().k());
    return source->bytesToRead() / all * static_cast<uint64_t>(sizes.k());
  }

  void read(int64_t first, int64_t count, float *values) const override {
    std::vector<float> output(static_cast<size_t>(source->shape().k()));
    for (int64_t i = 0; i < count; ++i, values += sizes.k()) {
      source->read(first + i, 1, output.data());
      std::copy_n(output.begin() + begin, sizes.k(), values);
    }
  }

  bool hasIntegers() const override { return false; }
  OutputSet kept(WeightFormat, int64_t, int64_t) const override { return 0; }
  std::span<const int32_t> columnOrder() const override { return {}; }

private:
  const int64_t begin;
  const WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makeColumns(WeightSourcePtr source, int64_t first,
                                  int64_t count) {
  return std::make_shared<ColumnsSource>(std::move(source), first, count);
}
