//===- Outputs.cpp - Some outputs of a weight -----------------------------===//

#include "Runs.h"

#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <numeric>

using namespace qwen;

namespace {
class OutputsSource final : public RunsSource<ForwardingSource> {
public:
  OutputsSource(WeightSourcePtr from, std::vector<int64_t> list)
      : RunsSource(std::move(from)), numbers(std::move(list)),
        sizes{{std::ssize(numbers)}} {
    if (source->shape().sizes.size() > 1)
      sizes.sizes.push_back(source->shape().k());
  }

  const WeightShape &shape() const override { return sizes; }
  ErrorText nameOf(int64_t output) const override {
    return source->nameOf(numbers[static_cast<size_t>(output)]);
  }
  uint64_t bytesToRead() const override {
    return source->bytesToRead() * numbers.size() /
           static_cast<uint64_t>(source->shape().outputs());
  }

private:
  void forRuns(int64_t first, int64_t count,
               const VisitFn &visit) const override {
    const int64_t *number = numbers.data() + first;
    for (int64_t done = 0, run = 1; done < count; done += run, run = 1) {
      while (done + run < count && number[done + run] == number[done] + run)
        ++run;
      visit(*source, number[done], run, done);
    }
  }

  /// Numbers of the source's outputs.
  const std::vector<int64_t> numbers;
  WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makeOutputs(WeightSourcePtr source,
                                  std::vector<int64_t> numbers) {
  return std::make_shared<OutputsSource>(std::move(source), std::move(numbers));
}

std::vector<int64_t> qwen::outputsFrom(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
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
    sources.set(name, {makeOutputs(fused.source, outputsFrom(first, outputs)),
                       fused.tensors});
    first += outputs;
  }
}
