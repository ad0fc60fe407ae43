//===- Ordered.cpp - Columns in the order of their groups -----------------===//

#include "qwen/Weights/Sources.h"

#include <span>
#include <string>
#include <vector>

using namespace qwen;

namespace {
/// A matrix whose columns are sorted as its integers are.
class OrderedSource final : public ForwardingSource {
public:
  explicit OrderedSource(WeightSourcePtr from)
      : ForwardingSource(std::move(from)) {}

  void read(int64_t first, int64_t count, float *values) const override {
    const std::span<const int32_t> order = source->columnOrder();
    std::vector<float> output(order.size());
    for (int64_t i = 0; i < count; ++i) {
      source->read(first + i, 1, output.data());
      for (int32_t column : order)
        *values++ = output[static_cast<size_t>(column)];
    }
  }

  std::span<const int32_t> columnOrder() const override { return {}; }
};

/// The values of a matrix whose integers have another order of columns.
class UnkeptSource final : public ForwardingSource {
public:
  explicit UnkeptSource(WeightSourcePtr from)
      : ForwardingSource(std::move(from)) {}

  WeightFormat keptFormat() const override { return WeightFormat::Q8_0; }
  OutputSet kept(WeightFormat, int64_t, int64_t) const override { return 0; }
  std::span<const int32_t> columnOrder() const override { return {}; }
};
} // namespace

WeightSourcePtr qwen::inModelOrder(WeightSourcePtr source) {
  return source->columnOrder().empty()
             ? source
             : std::make_shared<UnkeptSource>(std::move(source));
}

void qwen::orderInputs(WeightSources &sources, const std::string &reader,
                       std::span<const std::string> writers) {
  const WeightSources::Entry *matrix = sources.find(reader);
  if (!matrix || matrix->source->columnOrder().empty())
    return;
  const std::span<const int32_t> order = matrix->source->columnOrder();
  const std::vector<int64_t> outputs(order.begin(), order.end());
  for (const std::string &writer : writers)
    if (const WeightSources::Entry *entry = sources.find(writer);
        !entry || entry->source->shape().outputs() != std::ssize(outputs))
      return;
  for (const std::string &writer : writers) {
    WeightSources::Entry entry = *sources.find(writer);
    entry.source = makeOutputs(entry.source, outputs);
    sources.set(writer, std::move(entry));
  }
  WeightSources::Entry ordered = *matrix;
  ordered.source = std::make_shared<OrderedSource>(ordered.source);
  sources.set(reader, std::move(ordered));
}
