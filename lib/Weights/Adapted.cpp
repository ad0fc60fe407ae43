//===- Adapted.cpp - Weights that an adapter changes ----------------------===//

#include "qwen/Weights/Adapted.h"

#include "Shifted.h"
#include "TensorSource.h"

#include "qwen/Numerics/Stored.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

void StoredMatrix::read(int64_t first, int64_t count, float *values) const {
  const StoredType type = *tensor.type;
  const auto at = [&](int64_t value) {
    return tensor.bytes.data() + storedBytes(type, value);
  };
  if (columnStep > 1) {
    for (int64_t i = first; i < first + count; ++i)
      for (int64_t j = firstColumn; j < tensor.shape[1]; j += columnStep)
        numerics::dequantize(type, at(i * tensor.shape[1] + j), 1, values++);
    return;
  }
  if (!isTransposed) {
    numerics::dequantize(type, at(first * columns()), count * columns(),
                         values);
    return;
  }
  std::vector<float> column(static_cast<size_t>(count));
  for (int64_t j = 0; j < columns(); ++j) {
    numerics::dequantize(type, at(j * rows() + first), count, column.data());
    for (int64_t i = 0; i < count; ++i)
      values[i * columns() + j] = column[static_cast<size_t>(i)];
  }
}

std::vector<double> LowRankUpdate::products(int64_t first,
                                            int64_t count) const {
  const int64_t rank = right.rows(), columns = right.columns();
  std::vector<float> factors(static_cast<size_t>(count * rank)),
      rows(static_cast<size_t>(rank * columns));
  left.read(first, count, factors.data());
  right.read(0, rank, rows.data());
  std::vector<double> sums(static_cast<size_t>(count * columns));
  const float *factor = factors.data();
  for (double *to = sums.data(); to != sums.data() + sums.size();
       to += columns) {
    const float *row = rows.data();
    for (int64_t j = 0; j < rank; ++j, ++factor, row += columns)
      for (int64_t c = 0; c < columns; ++c)
        to[c] += double{*factor} * double{row[c]};
    for (int64_t c = 0; c < columns; ++c)
      to[c] *= scale;
  }
  return sums;
}

namespace {
/// A source whose values are no integers of the checkpoint.
class AdaptedSource : public ComputedSource {
public:
  std::string_view form() const override { return formName; }
  WeightFormat keptFormat() const override {
    const WeightFormat kept = source->keptFormat();
    return isQuantized(kept) ? kept : WeightFormat::F32;
  }

protected:
  explicit AdaptedSource(WeightSourcePtr from)
      : ComputedSource(std::move(from)), formName(source->form()) {
    constexpr std::string_view kAdapted = " + LoRA";
    if (!formName.ends_with(kAdapted))
      formName += kAdapted;
  }

private:
  std::string formName;
};

class LoraSource final : public AdaptedSource {
public:
  LoraSource(WeightSourcePtr from, LowRankUpdate change)
      : AdaptedSource(std::move(from)), update(std::move(change)) {}

  uint64_t bytesToRead() const override {
    return source->bytesToRead() + update.bytes();
  }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t k = shape().k();
    std::vector<double> sums(static_cast<size_t>(k));
    for (const int64_t end = first + count; first < end;
         first += kPanelOutputs) {
      const int64_t some = std::min(kPanelOutputs, end - first);
      source->read(first, some, values);
      const std::vector<double> products = update.products(first, some);
      const double *product = products.data();
      for (int64_t i = 0; i < some; ++i, values += k) {
        for (int64_t j = 0; j < k; j += update.group, ++product)
          for (int64_t c = j; c < j + update.group; ++c)
            sums[static_cast<size_t>(c)] = values[c] + *product;
        if (update.norms)
          setNorm(first + i, sums);
        std::ranges::copy(sums, values);
      }
    }
  }

private:
  /// Scales an output to its norm.
  void setNorm(int64_t output, std::span<double> values) const {
    const StoredType type = *update.norms->type;
    float norm = 0;
    numerics::dequantize(
        type, update.norms->bytes.data() + storedBytes(type, output), 1, &norm);
    double squares = 0;
    for (double value : values)
      squares += value * value;
    const double factor = norm / std::sqrt(squares);
    for (double &value : values)
      value *= factor;
  }

  const LowRankUpdate update;
};

class SumSource final : public AdaptedSource {
public:
  SumSource(WeightSourcePtr from, const StoredTensor &tensor, double factor)
      : AdaptedSource(std::move(from)), addend(tensor), scale(factor) {}

  uint64_t bytesToRead() const override {
    return source->bytesToRead() + addend.bytesToRead();
  }

  void read(int64_t first, int64_t count, float *values) const override {
    std::vector<float> added(static_cast<size_t>(count * shape().k()));
    source->read(first, count, values);
    addend.read(first, count, added.data());
    for (size_t i = 0; i < added.size(); ++i)
      values[i] = static_cast<float>(values[i] + scale * added[i]);
  }

private:
  const TensorSource addend;
  const double scale;
};

class ReplacedSource final : public TensorSource {
public:
  ReplacedSource(const StoredTensor &tensor, WeightFormat format)
      : TensorSource(tensor), format(format) {}

  WeightFormat keptFormat() const override {
    return isQuantized(format) ? format : TensorSource::keptFormat();
  }
  bool hasIntegers() const override { return false; }

private:
  const WeightFormat format;
};
} // namespace

int64_t qwen::groupOf(const WeightSource &source) {
  const auto *grouped = dynamic_cast<const GroupedSource *>(&source);
  return grouped ? grouped->group() : 0;
}

WeightSourcePtr qwen::makeLora(WeightSourcePtr source, LowRankUpdate update) {
  const int64_t group = groupOf(*source);
  if (group > 0 && update.group % group == 0 && !update.norms)
    return makeShifted(
        std::static_pointer_cast<const GroupedSource>(std::move(source)),
        std::move(update));
  return std::make_shared<LoraSource>(std::move(source), std::move(update));
}

WeightSourcePtr qwen::makeSum(WeightSourcePtr source,
                              const StoredTensor &addend, double scale) {
  return std::make_shared<SumSource>(std::move(source), addend, scale);
}

WeightSourcePtr qwen::makeReplaced(const WeightSourcePtr &source,
                                   const StoredTensor &values) {
  return std::make_shared<ReplacedSource>(values, source->keptFormat());
}
