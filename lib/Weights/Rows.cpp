//===- Rows.cpp - Some outputs of a weight --------------------------------===//

#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <numeric>

using namespace qwen;

namespace {
class RowsSource final : public WrappedSource {
public:
  RowsSource(WeightSourcePtr from, std::vector<int64_t> numbers)
      : WrappedSource(std::move(from)), rows(std::move(numbers)),
        sizes{{std::ssize(rows)}} {
    if (source->shape().sizes.size() > 1)
      sizes.sizes.push_back(source->shape().k());
  }

  const WeightShape &shape() const override { return sizes; }
  uint64_t bytesToRead() const override {
    return source->bytesToRead() * rows.size() /
           static_cast<uint64_t>(source->shape().outputs());
  }

  void read(int64_t first, int64_t count, float *values) const override {
    forRuns(first, count, [&](int64_t row, int64_t run, int64_t done) {
      source->read(row, run, values + done * sizes.k());
    });
  }

  std::optional<StoredType> floatType() const override {
    return source->floatType();
  }
  WeightFormat keptFormat() const override { return source->keptFormat(); }
  bool hasIntegers() const override { return source->hasIntegers(); }

  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override {
    OutputSet outputs = 0;
    forRuns(first, count, [&](int64_t row, int64_t run, int64_t done) {
      outputs |= source->kept(format, row, run) << done;
    });
    return outputs;
  }

  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override {
    numerics::EncodeError error;
    const int64_t count =
        std::min(kPanelOutputs - lane, sizes.outputs() - first);
    forRuns(first, count, [&](int64_t row, int64_t run, int64_t done) {
      error += source->keep(format, row, someOf(outputs, done, run),
                            lane + done, panel);
    });
    return error;
  }

  std::span<const int32_t> columnOrder() const override {
    return source->columnOrder();
  }

private:
  /// Calls visit(row, run, done) for each run of rows of the source that follow
  /// each other there: `row` is the first, `done` is the number before it.
  template <typename Visit>
  void forRuns(int64_t first, int64_t count, Visit visit) const {
    const int64_t *row = rows.data() + first;
    for (int64_t done = 0, run = 1; done < count; done += run, run = 1) {
      while (done + run < count && row[done + run] == row[done] + run)
        ++run;
      visit(row[done], run, done);
    }
  }

  const std::vector<int64_t> rows;
  WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makeRows(WeightSourcePtr source,
                               std::vector<int64_t> rows) {
  return std::make_shared<RowsSource>(std::move(source), std::move(rows));
}

std::vector<int64_t> qwen::rowsFrom(int64_t first, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

void qwen::addProjections(WeightSources &sources,
                          const WeightSources::Entry &fused,
                          std::span<const NamedOutputs, 3> projections) {
  int64_t needed = 0;
  for (const NamedOutputs &part : projections)
    needed += part.outputs;
  const int64_t found = fused.source->shape().outputs();
  if (found != needed)
    throw Error(fused.source->name() + " has " + part::found(found) +
                " outputs when " + part::needed(needed) +
                " of q, k and v are needed");
  int64_t first = 0;
  for (const auto &[name, outputs] : projections) {
    sources.set(name, {makeRows(fused.source, rowsFrom(first, outputs)),
                       fused.tensors});
    first += outputs;
  }
}
