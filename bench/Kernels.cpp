//===- Kernels.cpp - Speed of the kernels ---------------------------------===//
//
//   bench-kernels FILE [--shapes=KxN,...] [--tokens=M,...]
//                 [--benchmark_filter=REGEX ...]
//
// FILE is what make-kernels made for this machine, or a compiled model. Each
// kernel that it has and this machine can run runs on one thread with operands
// in a core's cache (KERNEL/cache) and, if it is a product, with weights from
// memory (KERNEL/memory): 10^9 multiplications and bytes a second, beside the
// peaks of this machine at the top. The bytes of a product are its weights.
// Other kernels have all bytes that a call reads and writes, each counted once.
// Kernels have the sizes of Qwen2.5-0.5B. --shapes and --tokens measure whole
// products in place of kernels (Products.cpp).
//
//===----------------------------------------------------------------------===//

#include "Kernels.h"
#include "CommandLine.h"
#include "ExitCodes.h"
#include "Peaks.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/Support/Error.h"

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

using namespace qwen;
using namespace qwen::bench;

/// Qwen2.5-0.5B's hidden size, size of a head, and query heads that share a
/// key.
static constexpr int64_t kDepth = 896;
static constexpr int64_t kHeadDim = 64;
static constexpr int64_t kSharing = 7;
static constexpr int64_t kFloat = sizeof(float);

const Mapping &bench::weightMemory() {
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

/// Multiplies the activations of `m` tokens with `panels` panels.
static void multiply(benchmark::State &state, const KernelInfo &kernel,
                     void *function, int64_t m, int64_t panels) {
  const int64_t n = panels * kPanelOutputs;
  const std::vector<float> x = floats(m * kDepth);
  const Blocks blocks(m, kDepth);
  std::vector<float> out = floats(m * n);
  const uint8_t *weights = weightMemory().data();
  repeat(state, panels * panelBytes(*weightFormat(kernel.format), kDepth),
         m * n * kDepth, [&] {
           if (kernel.op == KernelOp::LinearQ8)
             reinterpret_cast<LinearQ8Fn *>(function)(
                 blocks.q.data(), blocks.d.data(), blocks.sums.data(), weights,
                 nullptr, nullptr, out.data(), m, kDepth, n, 0, panels);
           else
             reinterpret_cast<LinearF32Fn *>(function)(
                 x.data(), weights, nullptr, nullptr, out.data(), m, kDepth, n,
                 0, panels);
         });
}

namespace {
/// Operands of all kernels but products with a matrix, and what they write.
struct Operands {
  static constexpr int64_t kHalf = kHeadDim / 2;
  static constexpr int64_t kPadded = alignTo(kSharing, kStateQueries);
  static constexpr int64_t kState = 2 * kPadded + kSharing * kHeadDim;

  std::vector<float> x = floats(kDepth), w = floats(kDepth), y = floats(kDepth);
  Blocks blocks{1, kDepth};
  std::vector<float> cos = floats(kHalf), sin = floats(kHalf);
  std::vector<float> scores = floats(kSharing * kPageTokens), p = scores;
  std::vector<float> m = floats(kSharing), l = floats(kSharing);
  std::vector<float> old = floats(kState), merged = floats(kState);
  std::vector<uint8_t> page =
      std::vector<uint8_t>(kPageTokens * kHeadDim * kFloat, 0x11);
};
static_assert(kSharing * kHeadDim <= kDepth);

/// Bytes of a token, of a head, of the queries that share a key and of their
/// scores in a page.
constexpr int64_t kTokenBytes = kFloat * kDepth;
constexpr int64_t kHeadBytes = kFloat * kHeadDim;
constexpr int64_t kQueryBytes = kSharing * kHeadBytes;
constexpr int64_t kScoreBytes = kFloat * kSharing * kPageTokens;
constexpr int64_t kPageMacs = kSharing * kPageTokens * kHeadDim;
constexpr float kEps = 1e-6f;
} // namespace

/// How the kernel's page lies in memory.
static const KvLayout &pageLayout(const KernelInfo &kernel) {
  return layoutOf(*kvFormat(kernel.format));
}

/// Runs a kernel that is no product with a matrix.
template <KernelOp Op>
static void runOn(benchmark::State &, const KernelInfo &, KernelFn<Op> *,
                  Operands &) {
  static_assert(isLinear(Op));
}

#define QWEN_RUN(Op)                                                           \
  template <>                                                                  \
  void runOn<KernelOp::Op>(benchmark::State & state, const KernelInfo &kernel, \
                           Op##Fn *function, Operands &o)

QWEN_RUN(Embed) {
  const int64_t bytes = panelBytes(*weightFormat(kernel.format), kDepth);
  repeat(state, bytes / kPanelOutputs + kTokenBytes, 0,
         [&] { function(weightMemory().data(), 1, kDepth, o.y.data()); });
}
QWEN_RUN(RmsNormF32) {
  repeat(state, 3 * kTokenBytes, 0,
         [&] { function(o.x.data(), o.w.data(), kDepth, kEps, o.y.data()); });
}
QWEN_RUN(RmsNormQ8) {
  repeat(state, 2 * kTokenBytes + o.blocks.bytes(), 0, [&] {
    function(o.x.data(), o.w.data(), kDepth, kEps, o.blocks.q.data(),
             o.blocks.d.data(), o.blocks.sums.data());
  });
}
QWEN_RUN(QuantizeQ8) {
  repeat(state, kTokenBytes + o.blocks.bytes(), 0, [&] {
    function(o.x.data(), kDepth, o.blocks.q.data(), o.blocks.d.data(),
             o.blocks.sums.data());
  });
}
QWEN_RUN(SwiGluF32) {
  repeat(state, 3 * kTokenBytes, 0,
         [&] { function(o.x.data(), o.w.data(), kDepth, o.y.data()); });
}
QWEN_RUN(SwiGluQ8) {
  Blocks blocks(1, kStackValues);
  repeat(state, 2 * kFloat * kStackValues + blocks.bytes(), 0, [&] {
    function(o.x.data(), o.w.data(), kStackValues, blocks.q.data(),
             blocks.d.data(), blocks.sums.data());
  });
}
QWEN_RUN(Hadamard) {
  repeat(state, 2 * kTokenBytes, 0,
         [&] { function(o.x.data(), kDepth, o.y.data()); });
}
QWEN_RUN(HadamardQ8) {
  Blocks blocks(1, kStackValues);
  repeat(state, kFloat * kStackValues + blocks.bytes(), 0, [&] {
    function(o.x.data(), kStackValues, blocks.q.data(), blocks.d.data(),
             blocks.sums.data());
  });
}
QWEN_RUN(CheckFinite) {
  repeat(state, kTokenBytes, 0,
         [&] { benchmark::DoNotOptimize(function(o.x.data(), kDepth)); });
}
QWEN_RUN(RopeTable) {
  repeat(state, 3 * kFloat * Operands::kHalf, 0, [&] {
    function(1000, o.cos.data(), Operands::kHalf, o.y.data(), o.p.data());
  });
}
QWEN_RUN(Rope) {
  repeat(state, 3 * kHeadBytes, 0, [&] {
    function(o.x.data(), o.cos.data(), o.sin.data(), Operands::kHalf,
             o.y.data());
  });
}
QWEN_RUN(NormRope) {
  repeat(state, 4 * kHeadBytes, 0, [&] {
    function(o.x.data(), o.w.data(), o.cos.data(), o.sin.data(),
             Operands::kHalf, kEps, o.y.data());
  });
}
QWEN_RUN(EncodeQuery) {
  repeat(state, kHeadBytes + KvQuery::bytes(kHeadDim), 0,
         [&] { function(o.x.data(), kHeadDim, o.page.data()); });
}
QWEN_RUN(AppendK) {
  repeat(state, kHeadBytes + pageLayout(kernel).slotBytes(kHeadDim), 0,
         [&] { function(o.x.data(), kHeadDim, 0, o.page.data()); });
}
QWEN_RUN(AppendV) { runOn<KernelOp::AppendK>(state, kernel, function, o); }
QWEN_RUN(AttentionScores) {
  const int64_t pageBytes = pageLayout(kernel).headBytes(kHeadDim);
  repeat(state, kQueryBytes + pageBytes + kScoreBytes, kPageMacs, [&] {
    function(o.x.data(), o.page.data(), 0.125f, o.p.data(), kSharing, kHeadDim,
             kPageTokens, o.page.data());
  });
}
QWEN_RUN(AttentionValues) {
  const int64_t pageBytes = pageLayout(kernel).headBytes(kHeadDim);
  repeat(state, kScoreBytes + pageBytes + kQueryBytes, kPageMacs, [&] {
    function(o.scores.data(), o.page.data(), o.y.data(), kSharing, kHeadDim,
             kPageTokens, o.page.data());
  });
}
QWEN_RUN(SoftmaxPage) {
  repeat(state, 2 * kScoreBytes + 2 * kFloat * kSharing, 0, [&] {
    function(o.scores.data(), kSharing, kPageTokens, o.p.data(), o.m.data(),
             o.l.data());
  });
}
QWEN_RUN(MergePage) {
  const std::vector<float> page = o.old;
  repeat(state, 3 * (2 * kFloat * kSharing + kQueryBytes), 0, [&] {
    function(o.old.data(), page.data(), kSharing, kHeadDim, o.merged.data());
  });
}
QWEN_RUN(FinishAttention) {
  repeat(state, 2 * kHeadBytes, 0,
         [&] { function(o.x.data(), 2.0f, kHeadDim, o.y.data()); });
}
QWEN_RUN(Turn) {
  repeat(state, 2 * kTokenBytes, 0,
         [&] { function(o.x.data(), o.w.data(), kDepth, o.y.data()); });
}
QWEN_RUN(SigmoidGate) {
  repeat(state, 3 * kTokenBytes, 0,
         [&] { function(o.x.data(), o.w.data(), kDepth, o.y.data()); });
}
QWEN_RUN(DeltaGates) {
  repeat(state, 6 * kFloat * kSharing, 0, [&] {
    function(o.x.data(), o.w.data(), o.m.data(), o.l.data(), kSharing,
             o.y.data(), o.p.data());
  });
}
QWEN_RUN(ShortConvolution) {
  constexpr int64_t n = 64;
  repeat(state,
         (2 + kConvolutionTaps + 2 * (kConvolutionTaps - 1)) * kFloat * n,
         n * kConvolutionTaps, [&] {
           function(o.x.data(), n, o.w.data(), 1, n, n, o.old.data(),
                    o.y.data(), n);
         });
}
QWEN_RUN(DeltaRule) {
  constexpr int64_t tokens = 256, keyDim = 128;
  constexpr int64_t elements = keyDim * kDeltaColumns;
  constexpr int64_t stride = 2 * keyDim + kDeltaColumns;
  // As in a sequence's state, no vector crosses a line of the cache.
  alignas(64) static std::array<float, elements> columns;
  const std::vector<float> x = floats(tokens * stride);
  const std::vector<float> gate(tokens, 0.5f);
  std::vector<float> y(tokens * kDeltaColumns), scratch(4 * keyDim);
  repeat(state, 2 * kFloat * elements * tokens, 4 * elements * tokens, [&] {
    benchmark::DoNotOptimize(
        function(x.data(), x.data() + keyDim, x.data() + 2 * keyDim, stride,
                 gate.data(), 1, gate.data(), 1, tokens, keyDim, 0.1f,
                 columns.data(), y.data(), kDeltaColumns, scratch.data()));
  });
}
QWEN_RUN(ChooseExperts) {
  // Of Qwen3-30B-A3B.
  constexpr int64_t n = 128, chosen = 8;
  std::array<int32_t, chosen> ids;
  repeat(state, kFloat * n + 2 * kFloat * chosen, 0, [&] {
    benchmark::DoNotOptimize(
        function(o.x.data(), n, chosen, ids.data(), o.y.data()));
  });
}
QWEN_RUN(AddScaled) {
  repeat(state, 3 * kTokenBytes, 0,
         [&] { function(o.x.data(), 0.5f, kDepth, o.y.data()); });
}
#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  QWEN_RUN(Map) {                                                              \
    repeat(state, 2 * kTokenBytes, 0,                                          \
           [&] { function(o.x.data(), kDepth, o.y.data()); });                 \
  }
#include "qwen/ABI/ElementMaps.def"
#undef QWEN_RUN

//===----------------------------------------------------------------------===//
// Kernels of a file
//===----------------------------------------------------------------------===//

/// Makes a benchmark of `run(state)`, named after a kernel and where its
/// operands are.
template <typename Run>
static void add(const KernelInfo &kernel, const char *where, Run run) {
  // The library owns what it is given.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  benchmark::RegisterBenchmark((std::string(kernel.name) + "/" + where).c_str(),
                               run);
}

static void addProduct(const KernelInfo &kernel, void *function) {
  const int64_t bytes = panelBytes(*weightFormat(kernel.format), kDepth);
  const auto addFor = [&](const char *where, int64_t m, int64_t panels) {
    add(kernel, where, [&kernel, function, m, panels](benchmark::State &state) {
      multiply(state, kernel, function, m, panels);
    });
  };
  // Half of a small second cache, with about as many tokens as a call of a
  // prompt has: a kernel takes a multiple of its own.
  addFor("cache", kernel.m == 1 ? 1 : 256 - 256 % kernel.m,
         std::max<int64_t>(131072 / bytes, 1));
  addFor("memory", kernel.m,
         static_cast<int64_t>(weightMemory().size()) / bytes);
}

/// The functions of `image` that are kernels for this machine.
static void registerKernels(const ElfMapping &image) {
  for (const auto &[name, address] : image.entries()) {
    const KernelInfo *kernel = findKernel(name.substr(0, name.find('.')));
    if (!kernel || !hostFeatures().containsAll(kernel->features()))
      continue;
    if (isLinear(kernel->op)) {
      addProduct(*kernel, address);
      continue;
    }
    visitKernelOp(kernel->op, [&]<KernelOp Op>() {
      auto *function = reinterpret_cast<KernelFn<Op> *>(address);
      add(*kernel, "cache", [kernel, function](benchmark::State &state) {
        Operands operands;
        runOn<Op>(state, *kernel, function, operands);
      });
    });
  }
}

/// A shape of --shapes, such as 896x9728.
static ProductShape parseShape(const std::string &text) {
  constexpr int64_t most = 1 << 20;
  const size_t split = std::min(text.find('x'), text.size());
  const auto size = [&](const std::string &part) {
    return parseNumber<int64_t>("--shapes", part, 1, most);
  };
  return {size(text.substr(0, split)),
          size(text.substr(std::min(split + 1, text.size())))};
}

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  std::string file;
  std::vector<ProductShape> shapes;
  std::vector<int64_t> tokens;
  const Program program("bench-kernels", "Measures the speed of kernels");
  program.addText("FILE", file, "A file of make-kernels, or a compiled model")
      .required();
  const Option shapeList =
      program
          .addTexts(
              "--shapes",
              [&](const std::vector<std::string> &texts) {
                std::ranges::transform(texts, std::back_inserter(shapes),
                                       parseShape);
              },
              "Shapes of products, KxN,...: whole products run in place "
              "of kernels")
          .list(',');
  shapeList.needs(
      program
          .addNumbers("--tokens", tokens, "Tokens of their calls", 1, 1 << 16)
          .needs(shapeList));
  try {
    if (!program.parse(argc, argv))
      return 0;
    const ElfMapping image(file);
    const run::Peaks peaks =
        run::measurePeaks(1, weightMemory().data(), weightMemory().size());
    char text[160];
    snprintf(text, sizeof(text),
             "%.1f GB/s, %.1f GMAC/s in f32, %.1f GMAC/s in int8 (%s)",
             peaks.readGB, peaks.floatGMac, peaks.integerGMac,
             peaks.integerInstruction.c_str());
    benchmark::AddCustomContext("peaks of one thread", text);
    if (shapes.empty())
      registerKernels(image);
    else
      registerProducts(image, shapes, tokens);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const Error &error) {
    fprintf(stderr, "bench-kernels: %s\n", error.what());
    return exitCodeOf(error);
  }
}
