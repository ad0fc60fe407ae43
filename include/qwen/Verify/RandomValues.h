//===- RandomValues.h - Operands for kernels --------------------*- C++ -*-===//

#ifndef QWEN_VERIFY_RANDOMVALUES_H
#define QWEN_VERIFY_RANDOMVALUES_H

#include "qwen/Verify/Guarded.h"

#include <cmath>
#include <iterator>
#include <random>

namespace qwen {

/// The distribution of the floats of a case.
enum class Values { Uniform, Magnitudes, Edges, Zeros, Subnormals, Large };
inline constexpr Values kValues[] = {Values::Uniform,    Values::Magnitudes,
                                     Values::Edges,      Values::Zeros,
                                     Values::Subnormals, Values::Large};

/// For messages.
constexpr const char *valuesName(Values values) {
  switch (values) {
  case Values::Uniform:
    return "uniform";
  case Values::Magnitudes:
    return "of many magnitudes";
  case Values::Edges:
    return "extreme";
  case Values::Zeros:
    return "zero";
  case Values::Subnormals:
    return "subnormal";
  case Values::Large:
    return "large";
  }
  __builtin_unreachable();
}

/// Draws operands, the same ones on every machine.
class Random {
public:
  explicit Random(uint32_t seed) : generator(seed) {}

  uint32_t bits() { return static_cast<uint32_t>(generator()); }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(bits() % static_cast<uint32_t>(n));
  }
  /// Uniform in [-1, 1).
  float uniform() {
    return static_cast<float>(static_cast<int32_t>(bits())) * 0x1p-31f;
  }

  float value(Values kind) {
    static constexpr float edges[] = {
        0.0f,       -0.0f,    1.0f,           -1.0f,    0.5f,     127.0f,
        -127.0f,    88.375f,  -87.3f,         -100.0f,  100.0f,   0x1p-126f,
        -0x1p-149f, 0x1p-24f, 0x1.8p-24f,     0x1p-25f, 65504.0f, -65519.0f,
        2049.0f,    2051.0f,  0x1.fffffep-1f, 1e-30f,   -1e15f};
    switch (kind) {
    case Values::Uniform:
      return uniform();
    case Values::Magnitudes:
      return std::ldexp(uniform(), static_cast<int>(below(40)) - 30);
    case Values::Edges:
      return edges[below(std::size(edges))];
    case Values::Zeros:
      return below(8) == 0 ? 0.0f : -0.0f;
    case Values::Subnormals:
      return uniform() * 0x1p-126f;
    case Values::Large:
      return uniform() * 1e17f;
    }
    __builtin_unreachable();
  }

  Guarded<float> floats(int64_t n, Values kind = Values::Uniform) {
    Guarded<float> result(n);
    for (float &x : result)
      x = value(kind);
    return result;
  }

  /// Any finite half.
  uint16_t half() {
    const uint16_t value = static_cast<uint16_t>(bits());
    return (value & 0x7c00) == 0x7c00 ? uint16_t{0x3c00} : value;
  }

private:
  std::mt19937 generator;
};

} // namespace qwen

#endif // QWEN_VERIFY_RANDOMVALUES_H
