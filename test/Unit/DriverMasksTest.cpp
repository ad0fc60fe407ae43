//===- DriverMasksTest.cpp - Attention over a call, three positions -------===//
//
// Attention without a cache, for each mask, and rotations by three positions:
// threads together give what a plain loop gives, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// Attention over the call
//===----------------------------------------------------------------------===//

namespace {
enum class Sees : uint8_t { Before, Window, All };

/// Sequences of windows of uneven lengths, which follow each other in a call.
struct Windows {
  Batch batch;
  std::vector<int32_t> numbers;
  /// The first token of each window, of each sequence, and the end.
  std::vector<size_t> windows, sequences;

  explicit Windows(Random &random) {
    for (int64_t left = random.between(1, 3); left > 0; --left) {
      sequences.push_back(numbers.size());
      const auto count = static_cast<int32_t>(random.between(1, 4));
      for (int32_t window = 0; window < count; ++window) {
        windows.push_back(numbers.size());
        const int64_t lengths[] = {1, 64, random.between(2, 80),
                                   random.between(65, 150)};
        for (int64_t i = lengths[random.between(0, 3)]; i > 0; --i) {
          numbers.push_back(window);
          // Any numbers: they are for the rotation only.
          batch.sequences.push_back(static_cast<int32_t>(left));
          batch.positions.push_back(
              static_cast<int32_t>(random.between(0, 1000)));
        }
      }
    }
    windows.push_back(numbers.size());
    sequences.push_back(numbers.size());
  }
};

/// Queries, keys and values of a token, rotated.
struct CallToken {
  Values queries, keys, values;
};

/// Attention of the tokens of a field to each other, or to those before.
std::vector<Values> plainAttention(const AttentionOps &ops,
                                   std::span<const CallToken> tokens,
                                   bool causal) {
  AttentionCache seen(KvFormat::F32, ops.kvHeads, ops.headDim);
  std::vector<Values> result;
  for (const CallToken &token : tokens) {
    seen.append(token.keys, token.values);
    if (causal)
      result.push_back(seen.attend(token.queries));
  }
  for (size_t i = result.size(); i < tokens.size(); ++i)
    result.push_back(seen.attend(tokens[i].queries));
  return result;
}

class CallAttention {
public:
  explicit CallAttention(uint32_t seed) : random(seed), call(random) {
    ops.kvHeads = random.between(1, 3);
    ops.groupQueries = random.between(1, 4);
    ops.headDim = 8 * random.between(1, 6);
    ops.blockTokens = random.between(1, 100);
    ops.rotates = random.between(0, 1) != 0;
    ops.reserve(arena, count(), 16 * random.between(0, 1));
    frequencies = image.add(frequenciesOf(ops.headDim));
    for (int64_t i = 0; i < count(); ++i)
      addToken(i);
  }

  int64_t count() const { return std::ssize(call.numbers); }

  /// What the tokens get that see `sees`, in plain C++.
  std::vector<Values> expected(Sees sees) const {
    const std::vector<size_t> &fields =
        sees == Sees::Window ? call.windows : call.sequences;
    std::vector<Values> result;
    for (size_t i = 0; i + 1 < fields.size(); ++i)
      std::ranges::move(
          plainAttention(
              ops,
              std::span(tokens).subspan(fields[i], fields[i + 1] - fields[i]),
              sees == Sees::Before),
          std::back_inserter(result));
    return result;
  }

  /// Runs the driver and returns the flags of tokens.
  std::vector<uint32_t> run(Sees sees) {
    DriverCall driver(randomShares(random.between(1, 8), random), count(), 2);
    Context &context = driver.context;
    context.images = image.images();
    context.arena = arena.at<uint8_t>(0);
    context.sequences = call.batch.sequences.data();
    context.positions = call.batch.positions.data();
    context.windows = sees == Sees::Window ? call.numbers.data() : nullptr;
    driver.run([&](int32_t thread) {
      ops.makeTable(&context, thread, frequencies);
      qwenDriverBarrier(&context, thread);
      ops.attendToCall(&context, thread, sees == Sees::Before,
                       sees == Sees::Window, 1);
    });
    return driver.flags;
  }

  float *out(int64_t token) {
    return arena.at(ops.out) + token * ops.outStride;
  }
  float *projected(int64_t token) {
    return arena.at(ops.projected) + token * ops.stride;
  }

  Random random;
  AttentionOps ops{};

private:
  void addToken(int64_t i) {
    const Values x = random.values(ops.projectedValues(), 4);
    std::ranges::copy(x, projected(i));
    const auto half = static_cast<size_t>(ops.half());
    Rotation rotation = {ops.headDim, 0, Values(half), Values(half)};
    numerics::ropeTable(call.batch.positions[static_cast<size_t>(i)],
                        frequenciesOf(ops.headDim).data(), ops.half(),
                        rotation.cos.data(), rotation.sin.data());
    const auto keys = x.begin() + ops.heads() * ops.headDim;
    const auto values = keys + ops.kvHeads * ops.headDim;
    tokens.push_back({rotation.rotated({x.begin(), keys}, {}),
                      rotation.rotated({keys, values}, {}),
                      {values, x.end()}});
  }

  const Windows call;
  Memory arena, image;
  int64_t frequencies = 0;
  std::vector<CallToken> tokens;
};
} // namespace

TEST(CallAttention, IsThatOfEachFieldAlone) {
  for (uint32_t seed = 0; seed < 16; ++seed) {
    CallAttention attention(seed);
    for (Sees sees : {Sees::Before, Sees::Window, Sees::All}) {
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", mask " << static_cast<int>(sees)
                   << ", blocks of " << attention.ops.blockTokens);
      const std::vector<uint32_t> flags = attention.run(sees);
      const std::vector<Values> expected = attention.expected(sees);
      for (int64_t i = 0; i < attention.count(); ++i) {
        ASSERT_TRUE(isSame(attention.out(i), expected[static_cast<size_t>(i)]))
            << "token " << i;
        ASSERT_EQ(flags[static_cast<size_t>(i)], kNoFlag);
      }
    }
  }
}

TEST(CallAttention, FlagsTheTokenWhoseKeyOrValueIsNotFinite) {
  CallAttention attention(3);
  const AttentionOps &ops = attention.ops;
  const int64_t last = attention.count() - 1, key = ops.heads() * ops.headDim,
                value = key + ops.kvHeads * ops.headDim;
  for (int64_t place : {key, value}) {
    float &x = attention.projected(last)[place];
    const float before = std::exchange(x, INFINITY);
    for (Sees sees : {Sees::Before, Sees::Window, Sees::All}) {
      const std::vector<uint32_t> flags = attention.run(sees);
      EXPECT_EQ(flags.back(), 1u);
      EXPECT_EQ(std::ranges::count(flags, kNoFlag), last);
    }
    x = before;
  }
}

//===----------------------------------------------------------------------===//
// Three positions
//===----------------------------------------------------------------------===//

namespace {
struct Sections {
  int64_t times, heights, widths;
  bool interleaved;

  int64_t half() const { return times + heights + widths; }

  /// The position by which each frequency rotates, as transformers' models
  /// assign them: to the three in turn by slices, or one after another.
  std::vector<size_t> axes() const {
    std::vector<size_t> result(static_cast<size_t>(half()));
    if (interleaved) {
      for (int64_t i = 1; i < 3 * heights; i += 3)
        result.at(static_cast<size_t>(i)) = 1;
      for (int64_t i = 2; i < 3 * widths; i += 3)
        result.at(static_cast<size_t>(i)) = 2;
      return result;
    }
    std::fill(result.begin() + times, result.end(), 1);
    std::fill(result.end() - widths, result.end(), 2);
    return result;
  }
};

/// Of Qwen2-VL, Qwen3-VL, Qwen3.5 and the tower of Qwen3-VL.
constexpr Sections kSections[] = {{16, 24, 24, false},
                                  {24, 20, 20, true},
                                  {11, 11, 10, true},
                                  {0, 18, 18, false}};

/// cos and sin of tokens with these positions [tokens][3].
std::pair<Values, Values> makeTable(const Sections &sections,
                                    const std::vector<int32_t> &positions,
                                    float scale, int64_t threads) {
  const auto tokens = std::ssize(positions) / 3;
  const int64_t half = sections.half();
  Memory arena, image;
  const int64_t cos = arena.reserve(tokens * half),
                sin = arena.reserve(tokens * half),
                frequencies = image.add(frequenciesOf(2 * half));
  DriverCall call(equalShares(threads), tokens, 1);
  call.context.images = image.images();
  call.context.arena = arena.at<uint8_t>(0);
  call.context.ropePositions = positions.data();
  call.run([&](int32_t thread) {
    Values scratch(static_cast<size_t>(2 * half));
    qwenDriverRopeSections(&call.context, thread,
                           {.frequencies = weightAt(frequencies),
                            .cos = floatPlace(cos, half),
                            .sin = floatPlace(sin, half),
                            .half = Length(half),
                            .scale = scale,
                            .op = OpId(0)},
                           {.times = Length(sections.times),
                            .heights = Length(sections.heights),
                            .widths = Length(sections.widths),
                            .interleaved = Flag(sections.interleaved),
                            .scratch = scratch.data(),
                            .kernel = numerics::ropeTable});
  });
  const auto valuesAt = [&](int64_t place) {
    return Values(arena.at(place), arena.at(place) + tokens * half);
  };
  return {valuesAt(cos), valuesAt(sin)};
}
} // namespace

TEST(RopeSections, AFrequencyRotatesByItsPosition) {
  Random random(1);
  for (const Sections &sections : kSections) {
    const int64_t half = sections.half();
    const Values frequencies = frequenciesOf(2 * half);
    const std::vector<size_t> axes = sections.axes();
    std::vector<int32_t> positions;
    for (int i = 0; i < 3 * 7; ++i)
      positions.push_back(static_cast<int32_t>(random.between(0, 100000)));
    for (float scale : {1.0f, 1.25f}) {
      Values cos, sin;
      for (size_t token = 0; token < 7; ++token)
        for (size_t i = 0; i < axes.size(); ++i) {
          float c, s;
          numerics::ropeTable(positions[3 * token + axes[i]], &frequencies[i],
                              1, &c, &s);
          cos.push_back(c * scale);
          sin.push_back(s * scale);
        }
      for (int64_t threads : {1, 2, 5})
        EXPECT_EQ(makeTable(sections, positions, scale, threads),
                  std::pair(cos, sin));
    }
  }
}

TEST(RopeSections, EqualPositionsGiveTheBitsOfOne) {
  for (const Sections &sections : kSections) {
    const int64_t half = sections.half();
    const Values frequencies = frequenciesOf(2 * half);
    for (int32_t position : {0, 1, 777, 262143}) {
      Values cos(static_cast<size_t>(half)), sin(static_cast<size_t>(half));
      numerics::ropeTable(position, frequencies.data(), half, cos.data(),
                          sin.data());
      EXPECT_EQ(makeTable(sections, {position, position, position}, 1, 1),
                std::pair(cos, sin));
    }
  }
}
