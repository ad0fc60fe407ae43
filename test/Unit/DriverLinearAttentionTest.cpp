//===- DriverLinearAttentionTest.cpp - Linear attention of the driver -----===//
//
// Calls of several sequences by several threads give what the references give
// for each token alone, bit for bit, also after steps back.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

using namespace qwen;
using namespace qwen::test;

namespace {
/// What a token of a sequence gets.
struct Expected {
  Values input, a, b, output;
};

/// A layer of linear attention from the products before it to its states.
struct LinearLayer {
  int64_t keyHeads, keyDim, heads, valueDim, sharing, stepBack;
  Values taps, rate, bias;

  explicit LinearLayer(Random &random)
      : keyHeads(random.between(1, 3)), keyDim(32 * random.between(1, 4)),
        heads(keyHeads * random.between(1, 6)),
        valueDim(32 * random.between(1, 3)),
        sharing(random.between(0, 1) ? heads / keyHeads : 1),
        stepBack(random.between(0, 3)),
        taps(random.values(kConvolutionTaps * channels())),
        rate(random.values(heads)), bias(random.values(heads, 3)) {
    for (float &value : rate)
      value = std::fabs(value);
  }

  int64_t values() const { return heads * valueDim; }
  float queryScale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(keyDim)));
  }
  int64_t channels() const { return 2 * keyHeads * keyDim + values(); }

  /// The tokens of one sequence.
  std::vector<Expected> run(int64_t tokens, Random &random) const;
};

/// Places of a layer and of the tokens of a call.
struct Places {
  Memory image, arena;
  int64_t taps, rate, bias, input, a, b, decay, beta, mixed, output;
  int64_t inputStride, gateStride, outputStride;

  Places(const LinearLayer &layer, int64_t tokens, Random &random)
      : taps(image.add(layer.taps)), rate(image.add(layer.rate)),
        bias(image.add(layer.bias)),
        inputStride(layer.channels() + 4 * random.between(0, 8)),
        gateStride(layer.heads + random.between(0, 3)),
        outputStride(layer.values() + random.between(0, 16)) {
    input = arena.reserve(tokens * inputStride);
    mixed = arena.reserve(tokens * inputStride);
    output = arena.reserve(tokens * outputStride);
    for (int64_t *gate : {&a, &b, &decay, &beta})
      *gate = arena.reserve(tokens * gateStride);
  }
};
} // namespace

std::vector<Expected> LinearLayer::run(int64_t tokens, Random &random) const {
  const auto zeros = [](int64_t n) { return Values(static_cast<size_t>(n)); };
  Values before = zeros(3 * channels()), state = zeros(keyDim * values());
  std::vector<Expected> result;
  while (std::ssize(result) < tokens) {
    Expected token = {random.values(channels(), 3), random.values(heads, 10),
                      random.values(heads, 10), zeros(values())};
    Values mixed = zeros(channels()), decay = zeros(heads), beta = zeros(heads);
    numerics::shortConvolution(token.input.data(), 0, taps.data(), 1,
                               channels(), channels(), before.data(),
                               mixed.data(), 0);
    numerics::deltaGates(token.a.data(), token.b.data(), rate.data(),
                         bias.data(), heads, decay.data(), beta.data());
    for (int64_t column = 0; column < values(); column += kDeltaColumns) {
      const int64_t head = column / valueDim;
      const float *q = mixed.data() + head / sharing % keyHeads * keyDim;
      const float *v = mixed.data() + 2 * keyHeads * keyDim + column;
      const auto at = static_cast<size_t>(head);
      numerics::deltaRule(q, q + keyHeads * keyDim, v, 0, &decay[at], 0,
                          &beta[at], 0, 1, keyDim, queryScale(),
                          state.data() + column * keyDim,
                          token.output.data() + column, 0, nullptr);
    }
    result.push_back(std::move(token));
  }
  return result;
}

namespace {
/// The fixed caches of a layer for some sequences, each of which keeps as many
/// states as the layer can step back and one more, or one.
struct States {
  /// The last entries of each sequence's row of the page tables.
  std::vector<int32_t> tables;
  int64_t count, stride;
  std::vector<std::vector<uint8_t>> caches;

  States(const LinearLayer &layer, size_t sequences, Random &random)
      : count(layer.stepBack + 1), stride(count + random.between(0, 2)) {
    const auto all = static_cast<int64_t>(sequences) * count;
    std::vector<int32_t> rows(static_cast<size_t>(all));
    std::iota(rows.begin(), rows.end(), 0);
    // Without steps back, the number of a sequence is its row.
    if (count > 1)
      std::ranges::shuffle(rows, std::mt19937(static_cast<uint32_t>(
                                     random.between(0, 1 << 30))));
    tables.assign(sequences * static_cast<size_t>(stride), -1);
    for (size_t s = 0; s < sequences; ++s) {
      int32_t *own = tables.data() + static_cast<int64_t>(s + 1) * stride;
      const bool keepsAll = random.between(0, 1);
      for (int64_t i = 0; i < count; ++i)
        *(own - count + i) = rows[s * static_cast<size_t>(count) +
                                  static_cast<size_t>(keepsAll ? i : 0)];
    }
    for (int64_t floats : {3 * layer.channels(), layer.keyDim * layer.values()})
      caches.emplace_back(sizeof(float) * static_cast<size_t>(all * floats));
  }

  /// The tokens that a sequence can lose.
  int64_t stepBack(int32_t sequence) const {
    const int32_t *end = tables.data() + (sequence + 1) * stride;
    return *(end - 1) == *(end - count) ? 0 : count - 1;
  }
};
} // namespace

static void checkCall(const LinearLayer &layer, const Batch &batch,
                      const std::vector<std::vector<Expected>> &sequences,
                      States &states, Random &random) {
  std::vector<std::vector<uint8_t>> &caches = states.caches;
  const auto tokens = std::ssize(batch.positions);
  Places at(layer, tokens, random);
  const auto expected = [&](int64_t i) -> const Expected & {
    const auto token = static_cast<size_t>(i);
    return sequences[static_cast<size_t>(batch.sequences[token])]
                    [static_cast<size_t>(batch.positions[token])];
  };
  for (int64_t i = 0; i < tokens; ++i) {
    const Expected &token = expected(i);
    std::ranges::copy(token.input, at.arena.at(at.input) + i * at.inputStride);
    std::ranges::copy(token.a, at.arena.at(at.a) + i * at.gateStride);
    std::ranges::copy(token.b, at.arena.at(at.b) + i * at.gateStride);
  }
  DriverCall call(randomShares(random.between(1, 4), random), tokens, 2);
  Context &context = call.context;
  uint8_t *bases[] = {caches[0].data(), caches[1].data()};
  context.caches = bases;
  context.images = at.image.images();
  context.arena = at.arena.at<uint8_t>(0);
  context.sequences = batch.sequences.data();
  context.positions = batch.positions.data();
  context.pageTables = states.tables.data();
  context.pageTableStride = states.stride;
  const auto bytes = [&](size_t cache) {
    return std::ssize(caches[cache]) / std::ssize(sequences) /
           (layer.stepBack + 1);
  };
  call.run([&](int32_t thread) {
    Values scratch(static_cast<size_t>(deltaRuleScratch(layer.keyDim)));
    qwenDriverShortConvolution(&context, thread,
                               {.in = floatPlace(at.input, at.inputStride),
                                .weight = weightAt(at.taps),
                                .out = floatPlace(at.mixed, at.inputStride),
                                .channels = Length(layer.channels()),
                                .layer = CacheOffset(0),
                                .op = OpId(0)},
                               {CacheId(0), Bytes(bytes(0)),
                                Tokens(layer.stepBack),
                                numerics::shortConvolution});
    qwenDriverDeltaGates(&context, thread,
                         {.a = floatPlace(at.a, at.gateStride),
                          .b = floatPlace(at.b, at.gateStride),
                          .rate = weightAt(at.rate),
                          .bias = weightAt(at.bias),
                          .decay = floatPlace(at.decay, at.gateStride),
                          .beta = floatPlace(at.beta, at.gateStride),
                          .heads = Heads(layer.heads),
                          .count = CountId(kTokensOfCall),
                          .op = OpId(0)},
                         {numerics::deltaGates});
    qwenDriverBarrier(&context, thread);
    qwenDriverDeltaRule(&context, thread,
                        {.in = floatPlace(at.mixed, at.inputStride),
                         .decay = floatPlace(at.decay, at.gateStride),
                         .beta = floatPlace(at.beta, at.gateStride),
                         .out = floatPlace(at.output, at.outputStride),
                         .layer = CacheOffset(0),
                         .op = OpId(1)},
                        {.cache = CacheId(1),
                         .cacheStride = Bytes(bytes(1)),
                         .stepBack = Tokens(layer.stepBack),
                         .keyHeads = Heads(layer.keyHeads),
                         .keyDim = Length(layer.keyDim),
                         .heads = Heads(layer.heads),
                         .valueDim = Length(layer.valueDim),
                         .sharing = Heads(layer.sharing),
                         .scale = layer.queryScale(),
                         .scratch = scratch.data(),
                         .kernel = numerics::deltaRule});
  });
  for (int64_t i = 0; i < tokens; ++i)
    ASSERT_TRUE(isSame(at.arena.at(at.output) + i * at.outputStride,
                       expected(i).output))
        << "token " << i;
  for (uint32_t flag : call.flags)
    ASSERT_EQ(flag, kNoFlag);
}

/// The last tokens of some sequences again, after `batch`: as many as the
/// states step back, or fewer.
static Batch stepBack(const Batch &batch, const States &states,
                      Random &random) {
  std::map<int32_t, int32_t> ends;
  for (size_t i = 0; i < batch.positions.size(); ++i)
    ends[batch.sequences[i]] = batch.positions[i] + 1;
  Batch again;
  for (const auto &[sequence, end] : ends)
    for (auto position = static_cast<int32_t>(std::max<int64_t>(
             0, end - random.between(0, states.stepBack(sequence))));
         position < end; ++position) {
      again.sequences.push_back(sequence);
      again.positions.push_back(position);
    }
  return again;
}

TEST(LinearAttention, IsThatOfEachTokenAlone) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const LinearLayer layer(random);
    std::vector<int64_t> lengths;
    std::vector<std::vector<Expected>> sequences;
    for (int64_t s = random.between(1, 3); s > 0; --s) {
      lengths.push_back(random.between(1, 20));
      sequences.push_back(layer.run(lengths.back(), random));
    }
    States states(layer, sequences.size(), random);
    for (const Batch &batch : randomBatches(lengths, random)) {
      checkCall(layer, batch, sequences, states, random);
      checkCall(layer, stepBack(batch, states, random), sequences, states,
                random);
      if (testing::Test::HasFatalFailure())
        return;
    }
  }
}

/// Two sequences of two tokens. The second token of the first overflows where
/// its beta is 2.
TEST(LinearAttention, FlagsAStateThatIsNotFinite) {
  constexpr int64_t kDim = 32, kInput = 3 * kDim, kTokens = 4;
  Memory image, arena;
  Values tokens(size_t{kTokens * kInput}, 1);
  tokens[2 * kInput - 1] = 3e38f;
  const int64_t input = arena.add(tokens),
                decay = arena.add(Values(size_t{kTokens}, 1)),
                beta = arena.add(Values{0.5f, 2, 0.5f, 0.5f}),
                output = arena.reserve(kTokens * kDim);
  alignas(64) float states[2][kDim * kDim] = {};
  auto *base = reinterpret_cast<uint8_t *>(states);
  const int32_t sequences[] = {0, 0, 1, 1}, positions[] = {0, 1, 0, 1};
  DriverCall call(equalShares(1), kTokens, 5);
  call.context.arena = arena.at<uint8_t>(0);
  call.context.caches = &base;
  call.context.sequences = sequences;
  call.context.positions = positions;
  float scratch[deltaRuleScratch(kDim)];
  const auto run = [&] {
    qwenDriverDeltaRule(&call.context, 0,
                        {.in = floatPlace(input, kInput),
                         .decay = floatPlace(decay, 1),
                         .beta = floatPlace(beta, 1),
                         .out = floatPlace(output, kDim),
                         .layer = CacheOffset(0),
                         .op = OpId(4)},
                        {.cache = CacheId(0),
                         .cacheStride = Bytes(sizeof(states[0])),
                         .stepBack = Tokens(0),
                         .keyHeads = Heads(1),
                         .keyDim = Length(kDim),
                         .heads = Heads(1),
                         .valueDim = Length(kDim),
                         .sharing = Heads(1),
                         .scale = 1,
                         .scratch = scratch,
                         .kernel = numerics::deltaRule});
  };
  run();
  EXPECT_EQ(call.flags, (std::vector<uint32_t>{kNoFlag, 4, kNoFlag, kNoFlag}));
  arena.at(beta)[1] = 0.5f;
  for (auto &state : states)
    std::ranges::fill(state, 0.0f);
  std::ranges::fill(call.flags, kNoFlag);
  run();
  EXPECT_EQ(call.flags, std::vector<uint32_t>(size_t{kTokens}, kNoFlag));
}
