//===- DriverGatesTest.cpp - Ops over blocks of a token in the driver -----===//
//
// Several threads share the blocks of several tokens and give what the
// references give for each token alone, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static constexpr int64_t kTokens = 3;

/// Runs call(context, thread, arguments with f32 results, arguments with int8
/// results) and compares the results of each token with floats(x, gate, n, y)
/// and with quantized(x, gate, n, y), quantized, for several n.
template <typename Call, typename Floats, typename Quantized>
static void checkGate(const Call &run, const Floats &floats,
                      const Quantized &quantized) {
  Random random(5);
  for (int64_t n : {32, 128, 160, 416, 1120}) {
    const Values x = random.values(kTokens * n), g = random.values(kTokens * n);
    Memory arena;
    const int64_t in = arena.add(x), gate = arena.add(g),
                  out = arena.reserve(kTokens * n),
                  codes = arena.reserve<int8_t>(kTokens * n),
                  scales =
                      arena.reserve(kTokens * ceilDiv(n, kActivationBlock)),
                  sums = arena.reserve<int32_t>(kTokens * n / kGroup);
    DriverCall call(equalShares(2), kTokens, 1);
    call.context.arena = arena.at<uint8_t>(0);
    const auto arguments = [&](const BlockRows &to) -> GateArguments {
      return {.in = rows(in, n),
              .gate = rows(gate, n),
              .out = to,
              .k = Length(n),
              .op = OpId(0)};
    };
    call.run([&](int32_t thread) {
      run(&call.context, thread, arguments(blockRows(out, n)),
          arguments(blockRows(codes, n, scales, sums)));
    });
    for (int64_t i = 0; i < kTokens; ++i) {
      Values y(static_cast<size_t>(n));
      floats(x.data() + i * n, g.data() + i * n, n, y.data());
      EXPECT_TRUE(isSame(arena.at(out) + i * n, y));
      quantized(x.data() + i * n, g.data() + i * n, n, y.data());
      std::vector<int8_t> q(static_cast<size_t>(n));
      std::vector<int32_t> s(static_cast<size_t>(n / kGroup));
      Values d(static_cast<size_t>(ceilDiv(n, kActivationBlock)));
      numerics::quantizeQ8(y.data(), n, q.data(), d.data(), s.data());
      EXPECT_TRUE(std::ranges::equal(
          q, std::span(arena.at<int8_t>(codes) + i * n, q.size())));
      EXPECT_TRUE(isSame(arena.at(scales) + i * std::ssize(d), d));
    }
  }
}

TEST(Gates, OfAttention) {
  checkGate(
      [](const Context *context, int32_t thread, const GateArguments &floats,
         const GateArguments &quantized) {
        qwenDriverGateF32(context, thread, floats, {numerics::sigmoidGate});
        qwenDriverGateQ8(context, thread, quantized,
                         {numerics::sigmoidGate, numerics::quantizeQ8});
      },
      numerics::sigmoidGate, numerics::sigmoidGate);
}

TEST(Gates, Hadamard) {
  checkGate(
      [](const Context *context, int32_t thread, const GateArguments &floats,
         const GateArguments &quantized) {
        qwenDriverHadamard(context, thread,
                           {.in = floats.in,
                            .out = floats.out,
                            .k = floats.k,
                            .op = floats.op},
                           {numerics::hadamard});
        qwenDriverSwiGluHadamardQ8(context, thread, quantized,
                                   {numerics::swiGluF32, numerics::hadamardQ8});
      },
      [](const float *x, const float *, int64_t n, float *y) {
        numerics::hadamard(x, n, y);
      },
      [](const float *x, const float *gate, int64_t n, float *y) {
        Values gated(static_cast<size_t>(n));
        numerics::swiGluF32(gate, x, n, gated.data());
        numerics::hadamard(gated.data(), n, y);
      });
}
