//===- Stacked.cpp - Matrices of one shape as one weight ------------------===//

#include "Matrices.h"
#include "Runs.h"

#include "qwen/Weights/Sources.h"

#include <algorithm>

using namespace qwen;

namespace {
/// Outputs of another source, matrix by matrix.
class MatricesSource : public RunsSource<WeightSource> {
public:
  const WeightShape &shape() const override { return sizes; }
  ErrorText nameOf(int64_t output) const override {
    const auto &[source, begin] = placeOf(output / sizes.sizes[1]);
    return source.nameOf(begin + output % sizes.sizes[1]);
  }

protected:
  /// The source of a matrix, and the number of its first output there.
  struct Place {
    const WeightSource &source;
    int64_t first;
  };

  explicit MatricesSource(WeightShape shape) : sizes(std::move(shape)) {}

  virtual Place placeOf(int64_t matrix) const = 0;

  const WeightShape sizes;

private:
  void forRuns(int64_t first, int64_t count,
               const VisitFn &visit) const override {
    forMatrices(sizes.sizes[1], first, count,
                [&](int64_t matrix, int64_t output, int64_t run, int64_t done) {
                  const auto &[source, begin] = placeOf(matrix);
                  visit(source, begin + output, run, done);
                });
  }
};

class StackedSource final : public MatricesSource {
public:
  explicit StackedSource(std::vector<WeightSourcePtr> from)
      : MatricesSource({{std::ssize(from), from.front()->shape().outputs(),
                         from.front()->shape().k()}}),
        sources(std::move(from)) {}

  ErrorText name() const override {
    return sources.front()->name() + " and those of " +
           std::to_string(sources.size() - 1) + " other experts";
  }
  std::string_view form() const override {
    return same(&WeightSource::form).value_or("several forms");
  }
  uint64_t bytesToRead() const override {
    uint64_t bytes = 0;
    for (const WeightSourcePtr &source : sources)
      bytes += source->bytesToRead();
    return bytes;
  }
  std::optional<StoredType> floatType() const override {
    return same(&WeightSource::floatType).value_or(std::nullopt);
  }
  WeightFormat keptFormat() const override {
    if (const auto format = same(&WeightSource::keptFormat))
      return *format;
    return std::ranges::any_of(sources, isOfIntegers) ? WeightFormat::Q8_0
                                                      : WeightFormat::F32;
  }
  bool hasIntegers() const override {
    return std::ranges::any_of(sources, [](const WeightSourcePtr &source) {
      return source->hasIntegers();
    });
  }

private:
  static bool isOfIntegers(const WeightSourcePtr &source) {
    return isQuantized(source->keptFormat());
  }

  Place placeOf(int64_t matrix) const override {
    return {*sources[static_cast<size_t>(matrix)], 0};
  }

  /// A fact of all sources, if it is the same.
  template <typename T>
  std::optional<T> same(T (WeightSource::*fact)() const) const {
    const T first = (*sources.front().*fact)();
    const bool isSame =
        std::ranges::all_of(sources, [&](const WeightSourcePtr &source) {
          return (*source.*fact)() == first;
        });
    return isSame ? std::optional(first) : std::nullopt;
  }

  const std::vector<WeightSourcePtr> sources;
};

class SlicesSource final : public MatricesSource {
public:
  SlicesSource(WeightSourcePtr from, int64_t first, int64_t count)
      : MatricesSource(
            {{from->shape().sizes[0], count, from->shape().sizes[2]}}),
        source(std::move(from)), first(first) {}

  ErrorText name() const override { return source->name(); }
  std::string_view form() const override { return source->form(); }
  uint64_t bytesToRead() const override {
    return source->bytesToRead() /
           static_cast<uint64_t>(source->shape().outputs()) *
           static_cast<uint64_t>(sizes.outputs());
  }
  std::optional<StoredType> floatType() const override {
    return source->floatType();
  }
  WeightFormat keptFormat() const override { return source->keptFormat(); }
  bool hasIntegers() const override { return source->hasIntegers(); }

private:
  Place placeOf(int64_t matrix) const override {
    return {*source, matrix * source->shape().sizes[1] + first};
  }

  const WeightSourcePtr source;
  const int64_t first;
};
} // namespace

WeightSourcePtr qwen::makeStacked(std::vector<WeightSourcePtr> sources) {
  for (WeightSourcePtr &source : sources)
    source = inModelOrder(std::move(source));
  return std::make_shared<StackedSource>(std::move(sources));
}

WeightSourcePtr qwen::makeSlices(WeightSourcePtr source, int64_t first,
                                 int64_t count) {
  return std::make_shared<SlicesSource>(std::move(source), first, count);
}
