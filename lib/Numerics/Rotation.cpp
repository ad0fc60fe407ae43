//===- Rotation.cpp - Rotations of docs/numerics.md -----------------------===//

#include "qwen/Numerics/Rotation.h"

#include "Hadamard.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <cmath>

using namespace qwen;
using namespace qwen::numerics;

/// SplitMix64's number `i` (https://doi.org/10.1145/2714064.2660195) of the
/// seed 0.
static uint64_t randomBits(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Rotation::Rotation(int64_t size)
    : signValues(static_cast<size_t>(size)),
      factorValues(static_cast<size_t>(oddPart(size))) {
  for (uint64_t i = 0; double &sign : signValues)
    sign = randomBits(i++) >> 63 != 0 ? -1 : 1;
  const double root = std::sqrt(static_cast<double>(size));
  for (int64_t i = 0; double &value : factorValues)
    value = cosPlusSin(i++, oddPart(size)) / root;
}

void Rotation::multiplySigns(double *x, int64_t lanes) const {
  for (double sign : signValues)
    for (const double *end = x + lanes; x != end; ++x)
      *x *= sign;
}

/// The odd part's transform of the rows of [odd][width], then the Hadamard
/// transform of each row.
void Rotation::transform(double *x, int64_t lanes) const {
  const int64_t odd = std::ssize(factorValues), all = size() * lanes;
  const int64_t width = all / odd;
  const std::vector<double> from(x, x + all);
  std::fill_n(x, all, 0);
  for (int64_t row = 0; row < odd; ++row)
    for (int64_t other = 0; other < odd; ++other) {
      const double weight =
          factorValues[static_cast<size_t>(row * other % odd)];
      const double *in = from.data() + other * width;
      double *out = x + row * width;
      for (int64_t i = 0; i < width; ++i)
        out[i] += weight * in[i];
    }
  for (int64_t row = 0; row < odd; ++row)
    transformHadamard(x + row * width, width / lanes, lanes);
}

void Rotation::turn(double *x, int64_t lanes) const {
  multiplySigns(x, lanes);
  transform(x, lanes);
}

void Rotation::turnBack(double *x, int64_t lanes) const {
  transform(x, lanes);
  multiplySigns(x, lanes);
}

void numerics::undoHadamard(std::span<double> x) {
  for (int64_t size; !x.empty(); x = x.subspan(static_cast<size_t>(size))) {
    size = hadamardBlock(std::ssize(x));
    transformHadamard(x.data(), size);
    for (double &value : x.first(static_cast<size_t>(size)))
      value /= static_cast<double>(size);
  }
}
