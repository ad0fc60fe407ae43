//===- Kernels.cpp - Speed of the rows of the kernel table ----------------===//
//
//   bench-kernels FILE [--benchmark_filter=REGEX ...]
//
// FILE is what make-kernels made for this machine, or a compiled model. Each
// row that it has and this machine can run runs on one thread with operands in
// a core's cache (row/cache) and, where it is a product, with weights that come
// from memory (row/memory): 10^9 multiplications and bytes a second, beside the
// peaks of this machine at the top. The bytes of a product are its weights',
// those of other rows whatever a call reads and writes, each counted once.
// Sizes are those of Qwen2.5-0.5B.
//
//===----------------------------------------------------------------------===//

#include "Peaks.h"
#include "artifact/ElfMapping.h"
#include "artifact/File.h"

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

/// Qwen2.5-0.5B's hidden size, size of a head, and query heads that share a
/// key.
static constexpr int64_t kDepth = 896;
static constexpr int64_t kHeadDim = 64;
static constexpr int64_t kSharing = 7;
static constexpr int64_t kFloat = sizeof(float);

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

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Measures a call that moves so many bytes and does so many multiplications.
template <typename Call>
static void repeat(benchmark::State &state, int64_t bytes, int64_t macs,
                   Call call) {
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

static std::vector<float> floats(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), 1.0f);
}

namespace {
/// `m` rows of activations in blocks, as operand or result.
struct Blocks {
  explicit Blocks(int64_t m, int64_t k)
      : q(static_cast<size_t>(m * k), 3),
        d(floats(m * ceilDiv(k, kActivationBlock))),
        sums(static_cast<size_t>(m * k / kGroup), 96) {}

  int64_t bytes() const {
    return static_cast<int64_t>(q.size() + 4 * d.size() + 4 * sums.size());
  }

  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sums;
};
} // namespace

/// Multiplies `m` rows of activations with `panels` panels.
static void multiply(benchmark::State &state, const KernelInfo &row,
                     void *kernel, int64_t m, int64_t panels) {
  const int64_t n = panels * kPanelOutputs;
  const std::vector<float> x = floats(m * kDepth);
  const Blocks blocks(m, kDepth);
  std::vector<float> out = floats(m * n);
  const uint8_t *weights = weightMemory().data();
  repeat(state, panels * panelBytes(*weightFormat(row.format), kDepth),
         m * n * kDepth, [&] {
           if (row.op == KernelOp::LinearQ8)
             reinterpret_cast<LinearQ8Fn *>(kernel)(
                 blocks.q.data(), blocks.d.data(), blocks.sums.data(), weights,
                 nullptr, nullptr, out.data(), m, kDepth, n, 0, panels);
           else
             reinterpret_cast<LinearF32Fn *>(kernel)(x.data(), weights, nullptr,
                                                     nullptr, out.data(), m,
                                                     kDepth, n, 0, panels);
         });
}

/// Runs a row that works on rows of activations.
static void runOnRow(benchmark::State &state, const KernelInfo &row,
                     void *kernel) {
  constexpr int64_t k = kDepth, rowBytes = kFloat * k;
  constexpr float eps = 1e-6f;
  const std::vector<float> x = floats(k), w = floats(k);
  std::vector<float> y = floats(k);
  Blocks blocks(1, k);
  int8_t *q = blocks.q.data();
  float *d = blocks.d.data();
  int32_t *sums = blocks.sums.data();
  switch (row.op) {
  case KernelOp::Embed:
    return repeat(state,
                  panelBytes(*weightFormat(row.format), k) / kPanelOutputs +
                      rowBytes,
                  0, [&] {
                    reinterpret_cast<EmbedFn *>(kernel)(weightMemory().data(),
                                                        1, k, y.data());
                  });
  case KernelOp::RmsNormF32:
    return repeat(state, 3 * rowBytes, 0, [&] {
      reinterpret_cast<RmsNormF32Fn *>(kernel)(x.data(), w.data(), k, eps,
                                               y.data());
    });
  case KernelOp::RmsNormQ8:
    return repeat(state, 2 * rowBytes + blocks.bytes(), 0, [&] {
      reinterpret_cast<RmsNormQ8Fn *>(kernel)(x.data(), w.data(), k, eps, q, d,
                                              sums);
    });
  case KernelOp::QuantizeQ8:
    return repeat(state, rowBytes + blocks.bytes(), 0, [&] {
      reinterpret_cast<QuantizeQ8Fn *>(kernel)(x.data(), k, q, d, sums);
    });
  case KernelOp::SwiGluF32:
    return repeat(state, 3 * rowBytes, 0, [&] {
      reinterpret_cast<SwiGluF32Fn *>(kernel)(x.data(), w.data(), k, y.data());
    });
  case KernelOp::SwiGluQ8: {
    const Blocks block(1, kActivationBlock);
    return repeat(state, 2 * kFloat * kActivationBlock + block.bytes(), 0, [&] {
      reinterpret_cast<SwiGluQ8Fn *>(kernel)(x.data(), w.data(),
                                             kActivationBlock, q, d, sums);
    });
  }
  case KernelOp::CheckFinite:
    return repeat(state, rowBytes, 0, [&] {
      benchmark::DoNotOptimize(
          reinterpret_cast<CheckFiniteFn *>(kernel)(x.data(), k));
    });
  default:
    throw Error("kernel '" + std::string(row.name) + "' works on no row");
  }
}

/// Runs a row that works on heads and pages of attention.
static void runOnHeads(benchmark::State &state, const KernelInfo &row,
                       void *kernel) {
  constexpr int64_t dim = kHeadDim, half = dim / 2, slots = kPageTokens;
  constexpr int64_t headBytes = kFloat * dim;
  constexpr int64_t scoreBytes = kFloat * kSharing * slots;
  constexpr int64_t queryBytes = kSharing * headBytes;
  constexpr int64_t macs = kSharing * slots * dim;
  const int64_t element = row.format == KernelFormat::F16 ? 2 : 4;
  const int64_t pageBytes = slots * dim * element;
  const std::vector<float> x = floats(kSharing * dim), w = floats(dim);
  const std::vector<float> cos = floats(half), sin = floats(half);
  const std::vector<float> scores = floats(kSharing * slots);
  std::vector<float> y = floats(kSharing * dim), p = scores;
  std::vector<float> m = floats(kSharing), l = floats(kSharing);
  std::vector<uint8_t> cache(static_cast<size_t>(pageBytes), 0x11);
  switch (row.op) {
  case KernelOp::RopeTable:
    return repeat(state, 3 * kFloat * half, 0, [&] {
      reinterpret_cast<RopeTableFn *>(kernel)(1000, cos.data(), half, y.data(),
                                              p.data());
    });
  case KernelOp::Rope:
    return repeat(state, 3 * headBytes, 0, [&] {
      reinterpret_cast<RopeFn *>(kernel)(x.data(), cos.data(), sin.data(), half,
                                         y.data());
    });
  case KernelOp::NormRope:
    return repeat(state, 4 * headBytes, 0, [&] {
      reinterpret_cast<NormRopeFn *>(kernel)(x.data(), w.data(), cos.data(),
                                             sin.data(), half, 1e-6f, y.data());
    });
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    return repeat(state, headBytes + dim * element, 0, [&] {
      reinterpret_cast<AppendKFn *>(kernel)(x.data(), dim, cache.data());
    });
  case KernelOp::AttentionScores:
    return repeat(state, queryBytes + pageBytes + scoreBytes, macs, [&] {
      reinterpret_cast<AttentionScoresFn *>(kernel)(x.data(), cache.data(),
                                                    0.125f, p.data(), kSharing,
                                                    dim, slots, cache.data());
    });
  case KernelOp::AttentionValues:
    return repeat(state, scoreBytes + pageBytes + queryBytes, macs, [&] {
      reinterpret_cast<AttentionValuesFn *>(kernel)(scores.data(), cache.data(),
                                                    y.data(), kSharing, dim,
                                                    slots, cache.data());
    });
  case KernelOp::SoftmaxPage:
    return repeat(state, 2 * scoreBytes + 2 * kFloat * kSharing, 0, [&] {
      reinterpret_cast<SoftmaxPageFn *>(kernel)(scores.data(), kSharing, slots,
                                                p.data(), m.data(), l.data());
    });
  case KernelOp::MergePage: {
    constexpr int64_t padded = alignTo(kSharing, kStateQueries);
    constexpr int64_t size = 2 * padded + kSharing * dim;
    const std::vector<float> old = floats(size), page = floats(size);
    std::vector<float> merged = floats(size);
    return repeat(state, 3 * (2 * kFloat * kSharing + queryBytes), 0, [&] {
      reinterpret_cast<MergePageFn *>(kernel)(old.data(), page.data(), kSharing,
                                              dim, merged.data());
    });
  }
  case KernelOp::FinishAttention:
    return repeat(state, 2 * headBytes, 0, [&] {
      reinterpret_cast<FinishAttentionFn *>(kernel)(x.data(), 2.0f, dim,
                                                    y.data());
    });
  default:
    return runOnRow(state, row, kernel);
  }
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Makes a benchmark of `run(state)`, named after a row and where its operands
/// are.
template <typename Run>
static void add(const KernelInfo &row, const char *where, Run run) {
  // The library owns what it is given.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  benchmark::RegisterBenchmark((std::string(row.name) + "/" + where).c_str(),
                               run);
}

/// The functions of `image` that are rows for this machine.
static void registerRows(const ElfMapping &image) {
  for (const auto &[name, address] : image.entries()) {
    const KernelInfo *row = findKernel(name.substr(0, name.find('.')));
    if (!row || !hostFeatures().containsAll(row->features()))
      continue;
    void *kernel = address;
    if (!isLinear(row->op)) {
      add(*row, "cache", [row, kernel](benchmark::State &state) {
        runOnHeads(state, *row, kernel);
      });
      continue;
    }
    const int64_t bytes = panelBytes(*weightFormat(row->format), kDepth);
    const auto addProduct = [&](const char *where, int64_t m, int64_t panels) {
      add(*row, where, [row, kernel, m, panels](benchmark::State &state) {
        multiply(state, *row, kernel, m, panels);
      });
    };
    // Half of a small second cache, and as many tokens as a prompt has.
    addProduct("cache", row->m == 1 ? 1 : 48,
               std::max<int64_t>(131072 / bytes, 1));
    addProduct("memory", row->m,
               static_cast<int64_t>(weightMemory().size()) / bytes);
  }
}

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    fprintf(stderr, "usage: bench-kernels FILE [--benchmark_...]\n");
    return 2;
  }
  try {
    const ElfMapping image(argv[1]);
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
