//===- DriverGatesTest.cpp - Ops over values of a token in the driver -----===//
//
// Several threads share the blocks of several tokens and give what the
// references give for each token alone, bit for bit. Turns give back the
// values that they have turned.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"

#include "qwen/Numerics/Rotation.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static constexpr int64_t kGateTokens = 3;

/// Runs call(context, thread, arguments with f32 results, arguments with int8
/// results) and compares the results of each token with floats(x, gate, n, y)
/// and with quantized(x, gate, n, y), quantized, for several n.
template <typename Call, typename Floats, typename Quantized>
static void checkGate(const Call &run, const Floats &floats,
                      const Quantized &quantized) {
  Random random(5);
  for (int64_t n : {32, 128, 160, 416, 1120}) {
    const Values x = random.values(kGateTokens * n),
                 g = random.values(kGateTokens * n);
    Memory arena;
    const int64_t in = arena.add(x), gate = arena.add(g),
                  out = arena.reserve(kGateTokens * n),
                  codes = arena.reserve<int8_t>(kGateTokens * n),
                  scales =
                      arena.reserve(kGateTokens * ceilDiv(n, kActivationBlock)),
                  sums = arena.reserve<int32_t>(kGateTokens * n / kGroup);
    DriverCall call(equalShares(2), kGateTokens, 1);
    call.context.arena = arena.at<uint8_t>(0);
    const auto arguments = [&](const BlockPlace &to) -> GateArguments {
      return {.in = floatPlace(in, n),
              .gate = floatPlace(gate, n),
              .out = to,
              .k = Length(n),
              .count = CountId(kTokensOfCall),
              .op = OpId(0)};
    };
    call.run([&](int32_t thread) {
      run(&call.context, thread, arguments(blockPlace(out, n)),
          arguments(blockPlace(codes, n, scales, sums)));
    });
    for (int64_t i = 0; i < kGateTokens; ++i) {
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
                         {numerics::sigmoidGate, numerics::quantizeQ8, {}});
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
                            .count = floats.count,
                            .op = floats.op},
                           {numerics::hadamard});
        qwenDriverSwiGluHadamardQ8(
            context, thread, quantized,
            {numerics::swiGluF32, numerics::hadamardQ8, {}});
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

TEST(Turn, TurnsTokensOrSelectedOnesAndBack) {
  constexpr int64_t k = 96, tokens = 7, kSelected = 3;
  const int32_t wanted[] = {1, 4, 6};
  Random random(2);
  Memory arena, image;
  const std::vector<float> x = random.values(tokens * k);
  const int64_t in = arena.add(x);
  const int64_t turned = arena.reserve(tokens * k);
  const int64_t back = arena.reserve(tokens * k);
  const int64_t codes = arena.reserve<int8_t>(kSelected * k);
  const int64_t scales = arena.reserve(kSelected);
  const int64_t sums = arena.reserve<int32_t>(kSelected * (k / kGroup));
  const numerics::Rotation rotation(k);
  std::vector<float> values(rotation.signs().begin(), rotation.signs().end());
  values.insert(values.end(), rotation.factor().begin(),
                rotation.factor().end());
  const auto weight = weightAt(image.add(values));
  DriverCall call(equalShares(3), tokens, 8);
  call.context.arena = arena.at<uint8_t>(0);
  call.context.images = image.images();
  call.select(kWantedTokens, wanted);
  const auto argumentsOf = [&](int64_t from, BlockPlace to, bool isBack,
                               int64_t count) {
    return TurnArguments{.in = floatPlace(from, k),
                         .rotation = weight,
                         .out = to,
                         .k = Length(k),
                         .back = Flag(isBack),
                         .count = CountId(count),
                         .op = OpId(5)};
  };
  call.run([&](int32_t thread) {
    std::array<float, 2 * k> scratch;
    qwenDriverTurnF32(
        &call.context, thread,
        argumentsOf(in, blockPlace(turned, k), false, kTokensOfCall),
        {.kernel = numerics::turn, .scratch = scratch.data()});
    qwenDriverTurnF32(
        &call.context, thread,
        argumentsOf(turned, blockPlace(back, k), true, kTokensOfCall),
        {.kernel = numerics::turn, .scratch = scratch.data()});
  });
  for (int64_t i = 0; i < tokens * k; ++i)
    ASSERT_NEAR(arena.at(back)[i], x[static_cast<size_t>(i)], 1e-6);

  // The input has the three wanted tokens first.
  arena.at(in)[k] = INFINITY;
  call.run([&](int32_t thread) {
    std::array<float, alignTo(k, kActivationBlock) + k> scratch;
    qwenDriverTurnQ8(&call.context, thread,
                     argumentsOf(in, blockPlace(codes, k, scales, sums), false,
                                 kWantedTokens),
                     {.kernel = numerics::turn,
                      .quantize = numerics::quantizeQ8,
                      .tiles = {},
                      .scratch = scratch.data()});
  });
  for (int64_t token : {0, 2})
    for (int64_t i = 0; i < k; ++i)
      ASSERT_NEAR(static_cast<float>(arena.at<int8_t>(codes)[token * k + i]) *
                      arena.at(scales)[token],
                  arena.at(turned)[token * k + i],
                  0.51 * arena.at(scales)[token]);
  EXPECT_EQ(call.flags, (std::vector<uint32_t>{kNoFlag, kNoFlag, kNoFlag,
                                               kNoFlag, 5, kNoFlag, kNoFlag}));
}
