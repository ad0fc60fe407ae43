//===- Kernels.cpp - Speed of the rows of products ------------------------===//
//
//   bench-kernels FILE [--benchmark_filter=REGEX ...]
//
// FILE is what make-kernels made for this machine, or a compiled model. Each
// row of a product that it has and this machine can run multiplies on one
// thread with weights in a core's cache (row/cache) and with weights that come
// from memory (row/memory): 10^9 multiplications and bytes of weights a second,
// beside the peaks of this machine at the top.
//
//===----------------------------------------------------------------------===//

#include "ElfImage.h"
#include "File.h"
#include "Peaks.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/Error.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/ABI/KernelTable.h"

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

using namespace qwen;

/// The hidden size of Qwen2.5-0.5B.
static constexpr int64_t kDepth = 896;

/// Memory for weights, in huge pages where there are such, as a model's are.
/// What is in it does not matter, but for subnormal floats: all bytes are 0x11.
static const Mapping &weightMemory() {
  static const Mapping memory = [] {
    Mapping map = Mapping::memory(size_t{128} << 20, "weights");
    madvise(map.data(), map.size(), MADV_HUGEPAGE);
    std::fill_n(map.data(), map.size(), uint8_t{0x11});
    return map;
  }();
  return memory;
}

/// Multiplies `m` rows of activations with `panels` panels.
static void multiply(benchmark::State &state, const KernelInfo &row,
                     void *kernel, int64_t m, int64_t panels) {
  const WeightFormat format = *weightFormat(row.format);
  const int64_t n = panels * kPanelRows;
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  const std::vector<float> x(size(m * kDepth), 1.0f);
  const std::vector<int8_t> q(size(m * kDepth), 3);
  const std::vector<float> d(size(m * ceilDiv(kDepth, kActivationBlock)), 1.0f);
  const std::vector<int32_t> sums(size(m * kDepth / kGroup), 96);
  std::vector<float> out(size(m * n));
  const uint8_t *weights = weightMemory().data();
  while (state.KeepRunning()) {
    if (isQuantized(row.format))
      reinterpret_cast<LinearQ8Fn *>(kernel)(
          q.data(), d.data(), sums.data(), weights, nullptr, nullptr,
          out.data(), m, kDepth, n, 0, panels);
    else
      reinterpret_cast<LinearF32Fn *>(kernel)(x.data(), weights, nullptr,
                                              nullptr, out.data(), m, kDepth, n,
                                              0, panels);
    benchmark::ClobberMemory();
  }
  const auto rate = [&](int64_t each) {
    return benchmark::Counter(static_cast<double>(each) * 1e-9,
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GMAC/s"] = rate(m * n * kDepth);
  state.counters["GB/s"] = rate(panels * panelBytes(format, kDepth));
}

/// The functions of `image` that are rows of products for this machine.
static void registerRows(const ElfImage &image) {
  for (const auto &[name, address] : image.entries()) {
    const KernelInfo *row = findKernel(name.substr(0, name.find('.')));
    if (!row || row->op != KernelOp::Linear ||
        !hostFeatures().containsAll(row->features()))
      continue;
    const int64_t bytes = panelBytes(*weightFormat(row->format), kDepth);
    void *kernel = address;
    const auto add = [&](const char *where, int64_t m, int64_t panels) {
      // The library owns what it is given.
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      benchmark::RegisterBenchmark(
          (std::string(row->name) + "/" + where).c_str(),
          [row, kernel, m, panels](benchmark::State &state) {
            multiply(state, *row, kernel, m, panels);
          });
    };
    // Half of a small second cache, and as many tokens as a prompt has.
    add("cache", row->m == 1 ? 1 : 48, std::max<int64_t>(131072 / bytes, 1));
    add("memory", row->m, static_cast<int64_t>(weightMemory().size()) / bytes);
  }
}

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    fprintf(stderr, "usage: bench-kernels FILE [--benchmark_...]\n");
    return 2;
  }
  try {
    const ElfImage image(argv[1]);
    const run::Peaks peaks =
        run::measurePeaks(1, weightMemory().data(), weightMemory().size());
    char text[160];
    snprintf(text, sizeof(text),
             "%.1f GB/s, %.1f GMAC/s in f32, %.1f GMAC/s in int8 (%s)",
             peaks.readGB, peaks.floatGMac, peaks.integerGMac,
             peaks.integerInstruction.c_str());
    benchmark::AddCustomContext("peaks of one thread", text);
    registerRows(image);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const Error &error) {
    fprintf(stderr, "bench-kernels: %s\n", error.what());
    return 1;
  }
}
