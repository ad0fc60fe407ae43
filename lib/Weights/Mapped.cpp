//===- Mapped.cpp - A function of each value ------------------------------===//

#include "qwen/Weights/Sources.h"

#include <cmath>

using namespace qwen;

static float mapped(ValueMap map, float value) {
  if (!std::isfinite(value))
    return value;
  switch (map) {
  case ValueMap::PlusOne:
    return 1 + value;
  case ValueMap::Exp:
    return numerics::exp(value);
  case ValueMap::Negate:
    return -value;
  }
  __builtin_unreachable();
}

namespace {
class MappedSource final : public ComputedSource {
public:
  MappedSource(WeightSourcePtr source, ValueMap map)
      : ComputedSource(std::move(source)), map(map) {}

  void read(int64_t first, int64_t count, float *values) const override {
    source->read(first, count, values);
    for (int64_t i = 0; i < count * shape().k(); ++i)
      values[i] = mapped(map, values[i]);
  }

private:
  const ValueMap map;
};
} // namespace

WeightSourcePtr qwen::makeMapped(WeightSourcePtr source, ValueMap map) {
  return std::make_shared<MappedSource>(std::move(source), map);
}

void qwen::mapValues(WeightSources &sources, std::span<const NamedMap> maps) {
  for (const auto &[name, entry] : sources.all())
    for (const auto &[suffix, map] : maps)
      if (name.ends_with(suffix))
        sources.set(name, {makeMapped(entry.source, map), entry.tensors});
}
