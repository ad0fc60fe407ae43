//===- Peaks.cpp - Measured limits of this machine ------------------------===//
//
// The operands of the measured loops stay in registers. Each loop has enough
// independent chains to hide the latency of any core. The loops are assembly,
// so that no compiler removes or reorders them.
//
//===----------------------------------------------------------------------===//

#include "Peaks.h"

#include "ReadStreams.h"
#include "engine/ThreadPool.h"

#include "qwen/ABI/CpuFeatures.h"

#include <algorithm>
#include <chrono>
#include <vector>

using namespace qwen;
using namespace qwen::run;
using Clock = std::chrono::steady_clock;

namespace {
/// `run` executes `count` rounds of a loop with `macs` multiplications each.
struct Loop {
  void (*run)(int64_t count);
  int64_t macs;
  const char *instruction;
};

} // namespace

#if defined(__x86_64__)
/// Repeats an instruction for chains 0 to 9; \r is the chain. Registers 10 and
/// 11 hold operands (zeros), 12 the products.
#define QWEN_LOOP(Instruction)                                                 \
  __asm__ volatile("vzeroall\n1:\n.irp r,0,1,2,3,4,5,6,7,8,9\n" Instruction    \
                   "\n.endr\ndecq %0\njnz 1b\nvzeroupper"                      \
                   : "+r"(count)                                               \
                   :                                                           \
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",     \
                     "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",         \
                     "xmm12", "xmm13", "xmm14", "xmm15")

static void fmaAvx2(int64_t count) {
  QWEN_LOOP("vfmadd231ps %%ymm10, %%ymm11, %%ymm\\r");
}
static void fmaAvx512(int64_t count) {
  QWEN_LOOP("vfmadd231ps %%zmm10, %%zmm11, %%zmm\\r");
}
/// Adds products in 16 bits without widening them: the q4_0 kernels widen only
/// after eight.
static void dotAvx2(int64_t count) {
  QWEN_LOOP("vpmaddubsw %%ymm10, %%ymm11, %%ymm12\n"
            "vpaddw %%ymm12, %%ymm\\r, %%ymm\\r");
}
static void dotAvxVnni(int64_t count) {
  QWEN_LOOP("%{vex%} vpdpbusd %%ymm10, %%ymm11, %%ymm\\r");
}
static void dotAvx512Vnni(int64_t count) {
  QWEN_LOOP("vpdpbusd %%zmm10, %%zmm11, %%zmm\\r");
}
/// Six sums, in tile registers of 16 lines of 64 bytes.
static void dotAmx(int64_t count) {
  // The palette, then for each tile register the bytes of a line and the lines.
  uint8_t config[64] = {1};
  for (int tile = 0; tile < 8; ++tile) {
    config[16 + 2 * tile] = 64;
    config[48 + tile] = 16;
  }
  __asm__ volatile("ldtilecfg %1\n1:\n.irp r,0,1,2,3,4,5\n"
                   "tdpbssd %%tmm7, %%tmm6, %%tmm\\r\n"
                   ".endr\ndecq %0\njnz 1b\ntilerelease"
                   : "+r"(count)
                   : "m"(config)
                   : "cc");
}

static Loop floatLoop() {
  return hostFeatures().contains(CpuFeature::AVX512F)
             ? Loop{fmaAvx512, 160, "fma"}
             : Loop{fmaAvx2, 80, "fma"};
}
static Loop integerLoop() {
  const CpuFeatureSet features = hostFeatures();
  if (features.contains(CpuFeature::AMXInt8))
    return {dotAmx, 98304, "tdpbssd"};
  if (features.contains(CpuFeature::AVX512VNNI))
    return {dotAvx512Vnni, 640, "vpdpbusd, 512 bits"};
  if (features.contains(CpuFeature::AVXVNNI))
    return {dotAvxVnni, 320, "vpdpbusd, 256 bits"};
  return {dotAvx2, 320, "vpmaddubsw and vpaddw"};
}
#elif defined(__aarch64__)
/// Repeats an instruction for chains 0 to 15; \r is the chain. Registers 16 and
/// 17 hold operands (zeros).
#define QWEN_LOOP(Instruction)                                                 \
  __asm__ volatile(                                                            \
      ".arch_extension dotprod\n.arch_extension i8mm\n"                        \
      "movi v16.16b, #0\nmovi v17.16b, #0\n1:\n"                               \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n" Instruction             \
      "\n.endr\nsubs %0, %0, #1\nb.ne 1b"                                      \
      : "+r"(count)                                                            \
      :                                                                        \
      : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",      \
        "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17")

static void fmaNeon(int64_t count) {
  QWEN_LOOP("fmla v\\r\\().4s, v16.4s, v17.4s");
}
static void dotNeon(int64_t count) {
  QWEN_LOOP("smlal v\\r\\().8h, v16.8b, v17.8b");
}
static void dotSdot(int64_t count) {
  QWEN_LOOP("sdot v\\r\\().4s, v16.16b, v17.16b");
}
static void dotSmmla(int64_t count) {
  QWEN_LOOP("smmla v\\r\\().4s, v16.16b, v17.16b");
}

static Loop floatLoop() { return {fmaNeon, 64, "fmla"}; }
static Loop integerLoop() {
  const CpuFeatureSet features = hostFeatures();
  if (features.contains(CpuFeature::I8MM))
    return {dotSmmla, 512, "smmla"};
  if (features.contains(CpuFeature::DotProd))
    return {dotSdot, 256, "sdot"};
  return {dotNeon, 128, "smlal"};
}
#endif

namespace {
/// The work of the threads. Context::arena holds its address.
struct Measurement {
  const uint8_t *data;
  size_t size;
  const Loop *loop;
  int64_t count;
  /// Seconds of each thread.
  std::vector<double> seconds;
  std::vector<uint64_t> sums;
};
} // namespace

/// Takes the place of `forward`: runs the loop or reads the thread's part.
static void work(const Context *context, int32_t thread, int32_t threads) {
  auto &job = *reinterpret_cast<Measurement *>(context->arena);
  const auto t = static_cast<size_t>(thread);
  context->barrier(context->barrierState, thread);
  const auto start = Clock::now();
  if (job.loop) {
    job.loop->run(job.count);
  } else {
    const size_t part = job.size / static_cast<size_t>(threads) / 64 * 64;
    job.sums[t] = readStreams<4>(job.data + t * part, part, 0);
  }
  job.seconds[t] = std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds of the slowest thread in the fastest of `passes` passes.
static double best(ThreadPool &pool, Measurement &job, int passes) {
  Context context = {};
  pool.bind(context);
  context.arena = reinterpret_cast<uint8_t *>(&job);
  double least = 0;
  for (int i = 0; i < passes; ++i) {
    pool.run(work, context);
    const double seconds = *std::ranges::max_element(job.seconds);
    if (i == 0 || seconds < least)
      least = seconds;
  }
  return least;
}

Peaks qwen::run::measurePeaks(int32_t threads, const uint8_t *data,
                              size_t size) {
  ThreadPool pool(threads);
  const auto count = static_cast<size_t>(threads);
  Measurement job = {data,
                     size,
                     nullptr,
                     0,
                     std::vector<double>(count),
                     std::vector<uint64_t>(count)};
  Peaks peaks;
  peaks.readGB = static_cast<double>(size) / best(pool, job, 8) * 1e-9;
  const auto measure = [&](const Loop &loop) {
    constexpr int64_t kRounds = 1'000'000;
    job.loop = &loop;
    job.count = kRounds;
    return static_cast<double>(loop.macs * kRounds * threads) /
           best(pool, job, 5) * 1e-9;
  };
  peaks.floatGMac = measure(floatLoop());
  const Loop integers = integerLoop();
  peaks.integerGMac = measure(integers);
  peaks.integerInstruction = integers.instruction;
  return peaks;
}
