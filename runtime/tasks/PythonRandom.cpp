//===- PythonRandom.cpp - Python's random numbers -------------------------===//

#include "tasks/PythonRandom.h"

#include <algorithm>
#include <bit>
#include <numeric>

using namespace qwen::tasks;

namespace {
/// Gives a std::mt19937 the state of init_by_array({key}).
class ArraySeed {
public:
  using result_type = uint32_t;
  explicit ArraySeed(uint32_t key) : key(key) {}

  template <typename It> void generate(It begin, It end) const {
    const size_t size = static_cast<size_t>(end - begin);
    std::vector<uint32_t> state(size);
    state[0] = 19650218;
    const auto mixed = [&](size_t i, uint32_t factor) {
      const uint32_t last = state[(i + size - 1) % size];
      return (last ^ (last >> 30)) * factor;
    };
    for (uint32_t i = 1; i < size; ++i)
      state[i] = mixed(i, 1812433253) + i;
    size_t i = 1;
    const auto step = [&] {
      if (++i == size) {
        state[0] = state[size - 1];
        i = 1;
      }
    };
    for (size_t k = 0; k < size; ++k, step())
      state[i] = (state[i] ^ mixed(i, 1664525)) + key;
    for (size_t k = 0; k + 1 < size; ++k, step())
      state[i] = (state[i] ^ mixed(i, 1566083941)) - static_cast<uint32_t>(i);
    state[0] = 0x80000000;
    std::ranges::copy(state, begin);
  }

private:
  uint32_t key;
};
} // namespace

static std::mt19937 seeded(uint32_t seed) {
  ArraySeed words(seed);
  return std::mt19937(words);
}

PythonRandom::PythonRandom(uint32_t seed) : generator(seeded(seed)) {}

double PythonRandom::real() {
  const uint32_t high = static_cast<uint32_t>(generator()) >> 5;
  const uint32_t low = static_cast<uint32_t>(generator()) >> 6;
  return (high * 0x1p26 + low) * 0x1p-53;
}

size_t PythonRandom::below(size_t bound) {
  const int bits = std::bit_width(bound);
  while (true) {
    const size_t number = static_cast<uint32_t>(generator()) >> (32 - bits);
    if (number < bound)
      return number;
  }
}

std::vector<size_t> PythonRandom::sample(size_t size, size_t count) {
  // Python keeps a set of the chosen numbers where that takes less memory than
  // a list of all; the two draw differently.
  size_t listed = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < 3 * count)
      power *= 4;
    listed += power;
  }
  std::vector<size_t> chosen;
  if (size <= listed) {
    std::vector<size_t> left(size);
    std::iota(left.begin(), left.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const size_t at = below(size - i);
      chosen.push_back(left[at]);
      left[at] = left[size - i - 1];
    }
    return chosen;
  }
  while (chosen.size() < count) {
    const size_t number = below(size);
    if (std::ranges::find(chosen, number) == chosen.end())
      chosen.push_back(number);
  }
  return chosen;
}
