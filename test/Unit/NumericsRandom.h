//===- NumericsRandom.h - Values for tests of the reference -----*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_NUMERICSRANDOM_H
#define QWEN_TEST_UNIT_NUMERICSRANDOM_H

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// The path of a file of test/Inputs.
inline std::string inputs(const std::string &name) {
  return std::string(QWEN_SOURCE_DIR "/test/Inputs/") + name;
}

/// Uniform values of [-1, 1), the same on every machine.
class Random {
public:
  explicit Random(uint32_t seed) : generator(seed) {}
  float value() {
    return static_cast<float>(static_cast<int32_t>(generator())) * 0x1p-31f;
  }
  std::vector<float> values(int64_t n, float scale = 1.0f) {
    std::vector<float> result(static_cast<size_t>(n));
    for (float &x : result)
      x = value() * scale;
    return result;
  }
  /// A uniform integer of [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(generator()) % (high - low + 1);
  }

private:
  std::mt19937 generator;
};

#endif // QWEN_TEST_UNIT_NUMERICSRANDOM_H
