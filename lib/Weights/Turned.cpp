//===- Turned.cpp - Weights that a rotation is folded into ----------------===//

#include "qwen/Weights/Turned.h"

#include "qwen/Numerics/Rotation.h"
#include "qwen/Weights/Owned.h"

#include <algorithm>
#include <mutex>
#include <optional>

using namespace qwen;
using numerics::Rotation;

static std::optional<Rotation> rotationOf(int64_t size) {
  if (size == 0)
    return std::nullopt;
  return Rotation(size);
}

/// Outputs that are turned together: as many columns as a cache holds.
static constexpr int64_t kColumnsTogether = 64;

namespace {
class TurnedSource final : public ComputedSource {
public:
  TurnedSource(WeightSourcePtr from, const Turn &turn)
      : ComputedSource(std::move(from)), hadamard(turn.hadamard),
        columns(rotationOf(turn.columns)), outputs(rotationOf(turn.outputs)) {
    if (!turn.scales)
      return;
    scales.resize(static_cast<size_t>(turn.scales->shape().values()));
    turn.scales->read(0, turn.scales->shape().outputs(), scales.data());
  }

  void read(int64_t first, int64_t count, float *values) const override {
    if (outputs) {
      std::call_once(once, [&] { turnOutputs(); });
      return turned->read(first, count, values);
    }
    source->read(first, count, values);
    const int64_t k = shape().k();
    std::vector<double> output(static_cast<size_t>(k));
    for (int64_t i = 0; i < count; ++i, values += k) {
      turnColumns({values, static_cast<size_t>(k)}, 0, output.data());
      std::ranges::copy(output, values);
    }
  }

private:
  /// Some columns of an output, from `first` on, in whole blocks.
  void turnColumns(std::span<const float> values, int64_t first,
                   double *result) const {
    std::ranges::copy(values, result);
    if (!scales.empty())
      for (size_t i = 0; i < values.size(); ++i)
        result[i] *= scales[static_cast<size_t>(first) + i];
    if (hadamard)
      numerics::undoHadamard({result, values.size()});
    if (columns)
      for (size_t i = 0; i < values.size();
           i += static_cast<size_t>(columns->size()))
        columns->turn(result + i);
  }

  /// Reads all outputs, and turns some columns of them at a time.
  void turnOutputs() const {
    const int64_t count = shape().outputs(), k = shape().k();
    const int64_t bytes =
        shape().values() * static_cast<int64_t>(sizeof(float));
    auto result = std::make_unique<Owned>(*source, placeOf(bytes));
    float *values = result->floats();
    source->read(0, count, values);
    const int64_t block = hadamard  ? kActivationBlock
                          : columns ? columns->size()
                                    : 1;
    const int64_t together = ceilDiv(kColumnsTogether, block) * block;
    std::vector<double> stripe(static_cast<size_t>(count * together));
    for (int64_t first = 0; first < k; first += together) {
      const int64_t width = std::min(together, k - first);
      for (int64_t i = 0; i < count; ++i)
        turnColumns({values + i * k + first, static_cast<size_t>(width)}, first,
                    stripe.data() + i * width);
      for (int64_t i = 0; i < count; i += outputs->size())
        outputs->turn(stripe.data() + i * width, width);
      for (int64_t i = 0; i < count; ++i)
        std::copy_n(stripe.data() + i * width, width, values + i * k + first);
    }
    turned = std::move(result);
  }

  std::vector<float> scales;
  const bool hadamard;
  const std::optional<Rotation> columns, outputs;
  mutable std::once_flag once;
  mutable std::unique_ptr<const Owned> turned;
};

class RotationSource final : public WeightSource {
public:
  explicit RotationSource(int64_t size)
      : rotation(size), sizes{{size + numerics::oddPart(size)}} {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return "the rotation"; }
  std::string_view form() const override { return "rotation"; }
  uint64_t bytesToRead() const override { return 0; }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t size = rotation.size();
    for (int64_t i = first; i < first + count; ++i)
      *values++ = static_cast<float>(
          i < size ? rotation.signs()[static_cast<size_t>(i)]
                   : rotation.factor()[static_cast<size_t>(i - size)]);
  }

private:
  const Rotation rotation;
  const WeightShape sizes;
};

class OnesSource final : public WeightSource {
public:
  explicit OnesSource(int64_t count) : sizes{{count}} {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return "ones"; }
  std::string_view form() const override { return "ones"; }
  uint64_t bytesToRead() const override { return 0; }

  void read(int64_t, int64_t count, float *values) const override {
    std::fill_n(values, count, 1.0f);
  }

private:
  const WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makeTurned(WeightSourcePtr source, const Turn &turn) {
  return std::make_shared<TurnedSource>(std::move(source), turn);
}

WeightSourcePtr qwen::makeRotation(int64_t size) {
  return std::make_shared<RotationSource>(size);
}

WeightSourcePtr qwen::makeOnes(int64_t count) {
  return std::make_shared<OnesSource>(count);
}
