//===- Kernels.h - Parts of bench-kernels -----------------------*- C++ -*-===//

#ifndef QWEN_BENCH_KERNELS_H
#define QWEN_BENCH_KERNELS_H

#include "artifact/ElfMapping.h"
#include "artifact/File.h"

#include "qwen/ABI/ActivationLayouts.h"

#include <benchmark/benchmark.h>

#include <span>
#include <vector>

namespace qwen::bench {

/// Memory for weights, in huge pages where there are such, as a model's are.
/// What is in it does not matter, but for subnormal floats: all bytes are 0x11.
const Mapping &weightMemory();

/// Measures a call that moves so many bytes and does so many multiplications.
template <typename Call>
void repeat(benchmark::State &state, int64_t bytes, int64_t macs, Call call) {
  while (state.KeepRunning()) {
    call();
    benchmark::ClobberMemory();
  }
  const auto rate = [](int64_t each) {
    return benchmark::Counter(static_cast<double>(each) * 1e-9,
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  if (macs != 0)
    state.counters["GMAC/s"] = rate(macs);
  state.counters["GB/s"] = rate(bytes);
}

inline std::vector<float> floats(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), 1.0f);
}

/// Quantized activations of `m` tokens, as operand or result.
struct Blocks {
  explicit Blocks(int64_t m, int64_t k)
      : q(static_cast<size_t>(roomForCodes(m, k)), 3),
        d(floats(roomForScales(m, k))),
        sums(static_cast<size_t>(m * k / kGroup), 96) {}

  int64_t bytes() const {
    return static_cast<int64_t>(q.size() + 4 * d.size() + 4 * sums.size());
  }

  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sums;
};

/// Values along K, and outputs.
struct ProductShape {
  int64_t k, n;
};

/// Adds a benchmark of each product of `image` that this machine can run, for
/// each shape and number of tokens. Products differ in their weight format and
/// in the kernel that multiplies most tokens.
void registerProducts(const ElfMapping &image,
                      std::span<const ProductShape> shapes,
                      std::span<const int64_t> tokens);

} // namespace qwen::bench

#endif // QWEN_BENCH_KERNELS_H
