//===- DriverSharedPagesTest.cpp - Threads that share long texts ----------===//
//
// Where a call has fewer KV heads than threads, threads divide the pages of
// each head: the result has the bits of a plain loop over all of them, for any
// number of threads and any memory for the states of pages.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

namespace {
/// Sequences of which the cache has all tokens.
class LongTexts {
public:
  /// Attention of the last `checked` tokens of each is known.
  LongTexts(const AttentionOps &shape, const std::vector<int64_t> &lengths,
            int64_t checked, Random &random)
      : ops(shape), lengths(lengths),
        frequencies(image.add(frequenciesOf(ops.headDim))),
        pages((ops.pageBytes = ops.layerBytes()), lengths, random) {
    Batch all;
    for (int64_t length : lengths) {
      std::vector<Values> projected;
      for (int64_t i = 0; i < length; ++i) {
        projected.push_back(random.values(ops.projectedValues(), 4));
        all.sequences.push_back(static_cast<int32_t>(tokens.size()));
        all.positions.push_back(static_cast<int32_t>(i));
      }
      tokens.push_back(
          plainAttention(ops, projected, {}, {}, length - checked));
    }
    run(all, equalShares(1), 0, /*attends=*/false);
  }

  /// Runs a call, whose result has `spare` rows more than tokens. Returns how
  /// often each thread waited.
  int64_t run(const Batch &batch, const std::vector<uint32_t> &shares,
              int64_t spare, bool attends = true);

  /// The last tokens of each sequence: `counts` has their numbers.
  Batch lastTokens(const std::vector<int64_t> &counts) const {
    Batch batch;
    for (size_t s = 0; s < counts.size(); ++s)
      for (int64_t i = lengths[s] - counts[s]; i < lengths[s]; ++i) {
        batch.sequences.push_back(static_cast<int32_t>(s));
        batch.positions.push_back(static_cast<int32_t>(i));
      }
    return batch;
  }

private:
  AttentionOps ops;
  std::vector<int64_t> lengths;
  std::vector<std::vector<AttentionToken>> tokens;
  Memory image;
  int64_t frequencies;
  Pages pages;
};

/// Counts the waits of one thread.
struct CountedBarrier {
  void (*wait)(void *state, int32_t thread);
  void *state;
  int64_t waits = 0;

  explicit CountedBarrier(Context &context)
      : wait(context.barrier), state(context.barrierState) {
    context.barrierState = this;
    context.barrier = [](void *of, int32_t thread) {
      auto *barrier = static_cast<CountedBarrier *>(of);
      if (thread == 0)
        ++barrier->waits;
      barrier->wait(barrier->state, thread);
    };
  }
};
} // namespace

int64_t LongTexts::run(const Batch &batch, const std::vector<uint32_t> &shares,
                       int64_t spare, bool attends) {
  const auto count = static_cast<int64_t>(batch.positions.size());
  const auto tokenOf = [&](int64_t i) -> const AttentionToken & {
    const auto index = static_cast<size_t>(i);
    return tokens[static_cast<size_t>(batch.sequences[index])]
                 [static_cast<size_t>(batch.positions[index])];
  };
  Memory arena;
  ops.reserve(arena, count, 0, spare);
  for (int64_t i = 0; i < count; ++i)
    std::ranges::copy(tokenOf(i).projected,
                      arena.at(ops.projected) + i * ops.stride);
  const int64_t behind = arena.add(Values{1});
  DriverCall call(shares, count, 3);
  bind(call.context, batch, pages, arena, image);
  CountedBarrier barrier(call.context);
  call.run([&](int32_t thread) {
    ops.makeTable(&call.context, thread, frequencies);
    qwenDriverBarrier(&call.context, thread);
    ops.append(&call.context, thread, -1, 0, 1);
    qwenDriverBarrier(&call.context, thread);
    if (attends)
      ops.attend(&call.context, thread, -1, 0, 2);
  });
  for (int64_t i = 0; attends && i < count; ++i)
    EXPECT_TRUE(
        isSame(arena.at(ops.out) + i * ops.outStride, tokenOf(i).expected))
        << "token " << i << " of " << count << ", " << call.threads()
        << " threads, " << spare << " rows";
  EXPECT_EQ(*arena.at(behind), 1);
  EXPECT_EQ(std::ranges::count(call.flags, kNoFlag), count);
  return barrier.waits - 2;
}

static AttentionOps shapeOf(KvFormat format, int64_t kvHeads,
                            int64_t groupQueries, int64_t headDim,
                            int64_t blockTokens) {
  AttentionOps ops{};
  ops.kvHeads = kvHeads;
  ops.groupQueries = groupQueries;
  ops.headDim = headDim;
  ops.cache = format;
  ops.blockTokens = blockTokens;
  ops.eps = 1e-6f;
  return ops;
}

TEST(SharedPages, HaveTheBitsOfOneThread) {
  for (KvFormat format : kKvFormats)
    for (uint32_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(testing::Message()
                   << kvFormatName(format) << ", seed " << seed);
      Random random(seed);
      const AttentionOps ops =
          shapeOf(format, random.between(1, 2), random.between(1, 7),
                  8 * random.between(1, 4), random.between(1, 4));
      LongTexts texts(ops, {1090 + random.between(0, 100), 700, 70}, 6, random);
      int64_t waits = 0;
      for (int64_t threads = 1; threads < 9; ++threads) {
        // A text alone; several; a short prompt behind one and beside others.
        for (const std::vector<int64_t> &counts :
             {std::vector<int64_t>{1}, {1, 1, 1}, {6, 1}, {2, 5, 1}}) {
          const Batch batch = texts.lastTokens(counts);
          waits += texts.run(batch, equalShares(threads), 200);
          texts.run(batch, randomShares(threads, random), 200);
        }
      }
      EXPECT_GE(waits, 8);
    }
}

TEST(SharedPages, FollowEachOtherInWindowsWhereRowsAreFew) {
  Random random(7);
  for (KvFormat format : kKvFormats) {
    const AttentionOps ops = shapeOf(format, 1, 2, 16, 2);
    LongTexts texts(ops, {2600, 1500}, 3, random);
    // 41 pages of 2 queries in 1 or 2 parts, 48 floats each; a row has 32.
    const Batch one = texts.lastTokens({1});
    EXPECT_EQ(texts.run(one, equalShares(4), 0), 0);
    EXPECT_EQ(texts.run(one, equalShares(4), 40), 0);
    EXPECT_EQ(texts.run(one, equalShares(4), 48), 5);
    EXPECT_EQ(texts.run(one, equalShares(4), 60), 5);
    EXPECT_EQ(texts.run(one, equalShares(4), 120), 3);
    EXPECT_EQ(texts.run(one, equalShares(4), 123), 1);
    EXPECT_EQ(texts.run(one, equalShares(4), 124), 1);
    // Another text ends in the first window.
    for (int64_t rows : {100, 150, 200, 300})
      texts.run(texts.lastTokens({3, 2}), randomShares(3, random), rows);
  }
}
