//===- PythonRandom.h - Python's random numbers -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_PYTHONRANDOM_H
#define QWEN_RUNTIME_TASKS_PYTHONRANDOM_H

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace qwen::tasks {

/// The numbers of Python's random.Random(seed): the Mersenne twister MT19937
/// (Matsumoto and Nishimura, 1998), seeded by its init_by_array with one word.
class PythonRandom {
public:
  explicit PythonRandom(uint32_t seed);

  /// random(): from 0 to 1, with 53 bits.
  double real();
  /// randrange(bound): below `bound`, which is at least 1 and below 2^32.
  size_t below(size_t bound);
  /// sample(range(size), count): different numbers below `size`, which is at
  /// least `count`.
  std::vector<size_t> sample(size_t size, size_t count);

private:
  std::mt19937 generator;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_PYTHONRANDOM_H
