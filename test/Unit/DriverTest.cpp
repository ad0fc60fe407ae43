//===- DriverTest.cpp - The driver's functions ----------------------------===//
//
// The driver's own functions, natively and with threads that meet: the
// sanitizers see the code that qwen-opt links as bitcode.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"
#include "IntegerKv.h"
#include "Units.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/mman.h>

using namespace qwen;
using namespace qwen::driver;
using namespace qwen::test;

// A swap of kinds in a struct of the driver does not compile.
static_assert(!std::is_convertible_v<Stride, ArenaOffset> &&
              !std::is_convertible_v<int64_t, ArenaOffset> &&
              !std::is_assignable_v<ArenaOffset &, WeightOffset>);

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

namespace {
/// How often each unit was computed.
using Counts = std::vector<std::atomic<int32_t>>;

struct Division {
  int64_t units, together, least;
};
constexpr Division kDivisions[] = {
    {0, 1, 1},   {1, 1, 1},    {2, 1, 1},     {7, 1, 3},      {8, 1, 1},
    {63, 1, 1},  {64, 1, 2},   {100, 2, 5},   {513, 3, 3},    {1000, 1, 1},
    {999, 4, 9}, {4096, 1, 1}, {4096, 8, 64}, {4099, 8, 300}, {4099, 1, 5000}};

void expectOnce(const Counts &counts, const char *what, size_t op) {
  for (size_t unit = 0; unit < counts.size(); ++unit)
    ASSERT_EQ(counts[unit], 1)
        << what << ", unit " << unit << " of " << kDivisions[op].units;
}

/// Divides all of kDivisions, an op each, among threads with `shares`.
void checkDivisions(std::vector<uint32_t> shares) {
  DriverCall call(std::move(shares), 0, std::size(kDivisions));
  std::vector<Counts> fixed, stolen;
  for (const Division &division : kDivisions) {
    fixed.emplace_back(static_cast<size_t>(division.units));
    stolen.emplace_back(static_cast<size_t>(division.units));
  }
  call.run([&](int32_t thread) {
    for (size_t op = 0; op < std::size(kDivisions); ++op) {
      const auto [units, together, least] = kDivisions[op];
      forUnits(&call.context, thread, units,
               [&](int64_t unit) { ++fixed[op][static_cast<size_t>(unit)]; });
      forStolenUnits(&call.context, thread, static_cast<int32_t>(op), units,
                     together, least, [&](int64_t begin, int64_t end) {
                       for (int64_t unit = begin; unit < end; ++unit)
                         ++stolen[op][static_cast<size_t>(unit)];
                     });
    }
  });
  for (size_t op = 0; op < std::size(kDivisions); ++op) {
    expectOnce(fixed[op], "forUnits", op);
    expectOnce(stolen[op], "forStolenUnits", op);
  }
}
} // namespace

TEST(Units, EachIsComputedOnce) {
  Random random(1);
  for (int64_t threads = 1; threads <= 8; ++threads) {
    SCOPED_TRACE(threads);
    checkDivisions(equalShares(threads));
    for (int i = 0; i < 4; ++i)
      checkDivisions(randomShares(threads, random));
    // All units in the share of one thread.
    std::vector<uint32_t> shares(static_cast<size_t>(threads) + 1, 65536);
    shares[0] = 0;
    checkDivisions(shares);
  }
}

TEST(Units, ThreadsThatMeetStealEachUnitOnce) {
  // Threads without a share steal one unit at a time.
  constexpr int64_t kUnits = 1000000;
  std::vector<uint32_t> shares(9);
  shares.back() = 65536;
  DriverCall call(shares, 0, 1);
  Counts counts(kUnits);
  call.run([&](int32_t thread) {
    if (thread == 7)
      return;
    for (;;) {
      const auto [begin, end] = steal(&call.context, thread, 0, 0, kUnits, 1);
      if (begin == end)
        break;
      ASSERT_EQ(end, begin + 1);
      ++counts[static_cast<size_t>(begin)];
    }
  });
  for (size_t unit = 0; unit < kUnits; ++unit)
    ASSERT_EQ(counts[unit], 1) << unit;
  EXPECT_EQ(call.taken[0], kUnits);
}

TEST(Units, AThreadStealsHalfOfItsShareAndAtLeastSome) {
  DriverCall call(equalShares(2), 0, 1);
  const auto expect = [&](int32_t thread, int64_t begin, int64_t end) {
    const Range range =
        steal(&call.context, thread, 0, /*shared=*/10, /*units=*/110,
              /*least=*/6);
    EXPECT_EQ(range.begin, begin);
    EXPECT_EQ(range.end, end);
  };
  expect(0, 10, 35);
  expect(1, 35, 54);
  expect(0, 54, 68);
  expect(0, 68, 78);
  expect(1, 78, 86);
  expect(0, 86, 92);
  expect(0, 92, 98);
  expect(1, 98, 104);
  expect(0, 104, 110);
  expect(1, 110, 110);
  expect(0, 110, 110);
  EXPECT_EQ(call.taken[0], 100u);
}

TEST(Units, TheLastStealTakesWhatIsLeft) {
  DriverCall call(equalShares(2), 0, 1);
  const Range range = steal(&call.context, 1, 0, 90, 94, 6);
  EXPECT_EQ(range.begin, 90);
  EXPECT_EQ(range.end, 94);
}

TEST(Units, TheTailIsAnEighthOrNothing) {
  const auto shared = [](std::vector<uint32_t> shares, int64_t units,
                         int64_t together) {
    DriverCall call(std::move(shares), 0, 0);
    return sharedUnits(&call.context, units, together);
  };
  // Of an eighth of 64, each of two threads can steal more than 3 units.
  EXPECT_EQ(shared(equalShares(2), 64, 3), 56);
  EXPECT_EQ(shared(equalShares(2), 63, 3), 63);
  EXPECT_EQ(shared(equalShares(2), 32, 1), 28);
  EXPECT_EQ(shared(equalShares(2), 31, 1), 31);
  EXPECT_EQ(shared(equalShares(8), 128, 1), 112);
  EXPECT_EQ(shared(equalShares(8), 127, 1), 127);
  EXPECT_EQ(shared(equalShares(1), 1000, 1), 1000);
  EXPECT_EQ(shared({0, 0, 65536}, 1000, 1), 1000);
}

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

TEST(Flags, TheLowestOpStays) {
  constexpr int64_t kTurns = 200, kTokens = 100;
  DriverCall call(equalShares(2), kTurns * kTokens, 0);
  std::atomic<int64_t> arrived = 0;
  call.run([&](int32_t thread) {
    for (int64_t turn = 0; turn < kTurns; ++turn) {
      for (++arrived; arrived < 2 * (turn + 1);)
        std::this_thread::yield();
      // From both ends, so that the threads meet.
      for (int64_t i = 0; i < kTokens; ++i) {
        const int64_t token =
            turn * kTokens + (thread == 0 ? i : kTokens - 1 - i);
        flag(&call.context, token, 0, /*bad=*/0);
        // One token in three has nothing to flag.
        for (int32_t op = 5; op > 1; op -= 2)
          flag(&call.context, token, op - thread, token % 3 != 0);
      }
    }
  });
  for (int64_t token = 0; token < kTurns * kTokens; ++token)
    ASSERT_EQ(call.flags[static_cast<size_t>(token)],
              token % 3 != 0 ? 2 : kNoFlag)
        << token;
}

//===----------------------------------------------------------------------===//
// A write of another thread between a read and a write
//===----------------------------------------------------------------------===//

namespace {
/// A number to which another thread writes `other` just before this one does:
/// the memory page allows only reads, and the handler of the signal plays the
/// other thread.
class ContestedNumber {
public:
  ContestedNumber() {
    struct sigaction action = {};
    action.sa_handler = writeOther;
    sigaction(SIGSEGV, &action, &before);
    number =
        static_cast<uint32_t *>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~ContestedNumber() {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(number, kBytes);
  }
  ContestedNumber(const ContestedNumber &) = delete;
  ContestedNumber &operator=(const ContestedNumber &) = delete;

  /// Sets the number to `first`, and to `then` when it is written next.
  uint32_t *set(uint32_t first, uint32_t then) {
    *number = first;
    other = then;
    mprotect(number, kBytes, PROT_READ);
    return number;
  }

private:
  static constexpr size_t kBytes = 65536;
  static void writeOther(int) {
    mprotect(number, kBytes, PROT_READ | PROT_WRITE);
    *number = other;
  }
  static inline uint32_t *number;
  static inline uint32_t other;
  struct sigaction before = {};
};
} // namespace

TEST(Meeting, TheLowestOpStays) {
  DriverCall call(equalShares(1), 1, 0);
  ContestedNumber number;
  for (uint32_t other : {2, 3, 4}) {
    CountOfCall &tokens = call.context.counts[kTokensOfCall];
    tokens.flags = number.set(kNoFlag, other);
    flag(&call.context, 0, 3, /*bad=*/1);
    EXPECT_EQ(tokens.flags[0], std::min<uint32_t>(3, other));
  }
}

TEST(Meeting, NoUnitIsStolenTwice) {
  DriverCall call(equalShares(2), 1, 0);
  ContestedNumber number;
  call.context.taken = number.set(0, 7);
  const Range range = steal(&call.context, 0, 0, 100, 120, 1);
  EXPECT_EQ(range.begin, 107);
  EXPECT_EQ(call.context.taken[0], range.end - 100);
  EXPECT_GT(range.end, range.begin);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

namespace {
constexpr int64_t kLength = 32;

struct KernelCall {
  int64_t tile, tokens, panels;
};
std::vector<KernelCall> kernelCalls;

/// In place of a product: adds the first activation of each token to its
/// outputs, and the residual.
template <int64_t M>
void addFirst(const float *x, const uint8_t *, const float *,
              const float *residual, float *out, int64_t m, int64_t k,
              int64_t ld, int64_t panelBegin, int64_t panelEnd) {
  kernelCalls.push_back({M, m, panelEnd - panelBegin});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t n = panelBegin * kPanelOutputs; n < panelEnd * kPanelOutputs;
         ++n)
      out[i * ld + n] += x[i * k] + residual[i * ld + n];
}

template <int64_t... M> std::vector<DriverTile<LinearF32Fn>> tilesOf() {
  return {{addFirst<M>, {.multiple = Tokens(M), .least = Tokens(0)}}...};
}
/// The first of the tiles takes `least` tokens and more, and `rest` tokens
/// behind a multiple of its own.
std::vector<DriverTile<LinearF32Fn>>
from(int64_t least, std::vector<DriverTile<LinearF32Fn>> tiles,
     int64_t rest = 0) {
  tiles[0].tokens.least = Tokens(least);
  tiles[0].tokens.rest = Tokens(rest);
  return tiles;
}
const std::vector<DriverTile<LinearF32Fn>> kTileLists[] = {
    tilesOf<1>(),
    tilesOf<2, 1>(),
    tilesOf<4, 2, 1>(),
    tilesOf<6, 4, 1>(),
    tilesOf<8, 3, 1>(),
    tilesOf<16, 8, 4, 3, 2, 1>(),
    from(12, tilesOf<4, 8, 3, 1>()),
    from(8, tilesOf<8, 4, 3, 1>(), 5)};

/// What a product is cut by.
struct Cut {
  int64_t cached, least, reused;
};

/// Multiplies `tokens` tokens with 7 panels; `out` starts as zeros.
void checkProduct(const std::vector<DriverTile<LinearF32Fn>> &tiles,
                  int64_t tokens, Cut cut) {
  constexpr int64_t kPanels = 7, kStride = kPanels * kPanelOutputs + 5;
  const auto residualOf = [](int64_t i, int64_t n) {
    return static_cast<float>(100 * (i * kStride + n));
  };
  Memory arena, image;
  const int64_t in = arena.reserve(tokens * kLength);
  const int64_t residual = arena.reserve(tokens * kStride);
  const int64_t out = arena.reserve(tokens * kStride);
  for (int64_t i = 0; i < tokens; ++i) {
    arena.at(in)[i * kLength] = static_cast<float>(i + 1);
    for (int64_t n = 0; n < kStride; ++n) {
      arena.at(residual)[i * kStride + n] = residualOf(i, n);
      arena.at(out)[i * kStride + n] = 0;
    }
  }
  DriverCall call(equalShares(1), tokens, 1);
  call.context.images = image.images();
  call.context.arena = arena.at<uint8_t>(0);
  kernelCalls.clear();
  qwenDriverLinearF32(&call.context, 0,
                      {.in = blockPlace(in, kLength),
                       .weight = weightAt(0),
                       .bias = weightAt(-1),
                       .out = floatPlace(out, kStride),
                       .k = Length(kLength),
                       .panels = Panels(kPanels),
                       .residual = ArenaOffset(residual),
                       .count = CountId(kTokensOfCall),
                       .op = OpId(0)},
                      {.product = {.cached = Length(cut.cached),
                                   .least = Panels(cut.least),
                                   .reused = Length(cut.reused),
                                   .together = Panels(1),
                                   .tiles = tiles.data(),
                                   .tileCount = std::ssize(tiles)}});
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t n = 0; n < kStride; ++n) {
      const bool computed = n < kPanels * kPanelOutputs;
      ASSERT_EQ(arena.at(out)[i * kStride + n],
                computed ? static_cast<float>(i + 1) + residualOf(i, n) : 0.0f)
          << "token " << i << ", output " << n;
    }
  const bool isTile = std::ranges::any_of(tiles, [&](const auto &tile) {
    return tile.tokens.multiple == tokens && tile.tokens.least <= tokens;
  });
  int64_t largest = 0;
  for (const auto &tile : tiles)
    largest = std::max<int64_t>(largest, tile.tokens.multiple);
  if (isTile) {
    ASSERT_EQ(kernelCalls.size(), 1u);
    EXPECT_EQ(kernelCalls[0].panels, kPanels);
  }
  for (const KernelCall &kernel : kernelCalls) {
    ASSERT_GT(kernel.tokens, 0);
    const TokenTiles &first = tiles[0].tokens;
    const bool isFirst = kernel.tile == first.multiple;
    const int64_t behind = kernel.tokens % kernel.tile;
    if (behind != 0)
      ASSERT_GE(behind,
                isFirst && first.rest > 0 ? int64_t{first.rest} : INT64_MAX);
    if (isFirst)
      ASSERT_GE(kernel.tokens, first.least);
    if (!isTile)
      ASSERT_LE(kernel.panels, std::max(cut.cached / kLength, cut.least));
    if (cut.reused != 0)
      ASSERT_LE(kernel.tokens, std::max(cut.reused / kLength, largest));
  }
}
} // namespace

TEST(Product, MultipliesEachTokenOnce) {
  for (const auto &tiles : kTileLists)
    for (int64_t tokens = 0; tokens <= 37; ++tokens)
      for (Cut cut :
           {Cut{0, 1, 0}, Cut{0, 3, 1}, Cut{2 * kLength + 1, 1, 13 * kLength},
            Cut{4 * kLength, 2, 20 * kLength}, Cut{1000 * kLength, 1, 0}}) {
        SCOPED_TRACE(testing::Message()
                     << "tile of " << int64_t{tiles[0].tokens.multiple} << ", "
                     << tokens << " tokens, " << cut.cached << ", " << cut.least
                     << ", " << cut.reused);
        checkProduct(tiles, tokens, cut);
        if (testing::Test::HasFatalFailure())
          return;
      }
}

/// 13 tokens are 8 and 5, and 12 are 8 and 4: a kernel for 8 tokens that takes
/// 5 behind them needs no other for 13.
TEST(Product, TakesARestThatIsLargeEnough) {
  const auto tilesFor = [](int64_t tokens) {
    checkProduct(from(8, tilesOf<8, 4, 3, 1>(), 5), tokens, {0, 7, 0});
    std::vector<int64_t> tiles;
    for (const KernelCall &kernel : kernelCalls)
      tiles.push_back(kernel.tile);
    return tiles;
  };
  EXPECT_EQ(tilesFor(13), std::vector<int64_t>{8});
  EXPECT_EQ(tilesFor(12), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(tilesFor(7), (std::vector<int64_t>{4, 3}));
}

TEST(Product, LmHeadFlagsTheTokenOfItsRow) {
  const int32_t wanted[] = {1, 4, 6};
  constexpr int64_t kPanels = 3, kStride = kPanels * kPanelOutputs;
  Random random(1);
  std::vector<float> activations = random.values(3 * kLength);
  activations[kLength] = INFINITY;
  Memory arena, image;
  const int64_t in = arena.add(activations);
  const int64_t weight = image.add(random.values(kStride * kLength));
  std::vector<float> result(3 * kStride);
  DriverCall call(equalShares(4), 7, 6);
  call.context.arena = arena.at<uint8_t>(0);
  call.context.images = image.images();
  call.select(kWantedTokens, wanted);
  call.context.result = result.data();
  const DriverTile<LinearF32Fn> tile = {
      numerics::reference<KernelOp::LinearF32>(KernelFormat::F32),
      {.multiple = Tokens(1), .least = Tokens(1)}};
  call.run([&](int32_t thread) {
    qwenDriverLmHeadF32(&call.context, thread,
                        {.in = blockPlace(in, kLength),
                         .weight = weightAt(weight),
                         .bias = weightAt(-1),
                         .out = floatPlace(-1, kStride),
                         .k = Length(kLength),
                         .panels = Panels(kPanels),
                         .residual = ArenaOffset(-1),
                         .count = CountId(kWantedTokens),
                         .op = OpId(5)},
                        {.product = {.cached = Length(0),
                                     .least = Panels(1),
                                     .reused = Length(0),
                                     .together = Panels(1),
                                     .tiles = &tile,
                                     .tileCount = 1},
                         .check = numerics::checkFinite});
  });
  EXPECT_EQ(call.flags, (std::vector<uint32_t>{kNoFlag, kNoFlag, kNoFlag,
                                               kNoFlag, 5, kNoFlag, kNoFlag}));
}

//===----------------------------------------------------------------------===//
// Integers in the arena
//===----------------------------------------------------------------------===//

/// The number of units of the second count is the first's number of zeros.
TEST(Count, HasAsManyUnitsAsAnotherOpHasCounted) {
  Random random(3);
  constexpr int64_t kBins = 100;
  for (int64_t zeros : {0, 1, 37, 250}) {
    std::vector<int32_t> ids(static_cast<size_t>(zeros));
    std::vector<int32_t> expected(size_t{kBins}, -1);
    for (int i = 0; i < 400; ++i)
      ids.push_back(static_cast<int32_t>(random.between(1, kBins + 20)));
    for (int64_t id = 0; id < std::min(zeros, kBins); ++id)
      expected[static_cast<size_t>(id)] =
          static_cast<int32_t>(std::ranges::count(ids, id));
    Memory arena;
    const int64_t limit = arena.reserve<int32_t>(1),
                  listed = arena.add(ids), // The same ids in the arena.
        out = arena.reserve<int32_t>(kBins);
    DriverCall call(equalShares(3), std::ssize(ids), 2);
    call.context.arena = arena.at<uint8_t>(0);
    call.context.tokenIds = ids.data();
    call.run([&](int32_t thread) {
      qwenDriverCount(&call.context, thread,
                      {.ids = ArenaOffset(-1),
                       .n = Length(0),
                       .limit = ArenaOffset(-1),
                       .out = ArenaOffset(limit),
                       .k = Length(1),
                       .op = OpId(0)},
                      {});
      qwenDriverBarrier(&call.context, thread);
      qwenDriverCount(&call.context, thread,
                      {.ids = ArenaOffset(listed),
                       .n = Length(std::ssize(ids)),
                       .limit = ArenaOffset(limit),
                       .out = ArenaOffset(out),
                       .k = Length(kBins),
                       .op = OpId(1)},
                      {});
    });
    // What no unit computes is as it was: all bits set.
    EXPECT_TRUE(std::ranges::equal(
        std::span(arena.at<int32_t>(out), size_t{kBins}), expected))
        << zeros;
  }
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// Tokens that the cache has already, with gaps between them.
Batch someTokens(const std::vector<int64_t> &lengths, Random &random) {
  Batch batch;
  for (size_t s = 0; s < lengths.size(); ++s)
    for (int32_t position = 0; position < lengths[s]; ++position)
      if (random.between(0, 3) > 0) {
        batch.sequences.push_back(static_cast<int32_t>(s));
        batch.positions.push_back(position);
      }
  return batch;
}

void checkAttention(uint32_t seed) {
  Random random(seed);
  constexpr int64_t kLayer = 1;
  AttentionOps ops{};
  ops.kvHeads = random.between(1, 3);
  ops.groupQueries = random.between(1, 4);
  ops.headDim = 8 * random.between(1, 6);
  const KvKernels formats[] = {KvFormat::F32, KvFormat::F16, KvFormat::Q8,
                               IntegerKv<kSigned8>::kernels(),
                               IntegerKv<kUnsigned4>::kernels()};
  ops.cache = formats[random.between(0, 4)];
  ops.pageBytes = 2 * ops.layerBytes() + 64 * random.between(0, 1);
  ops.blockTokens = random.between(1, 12);
  ops.eps = 1e-6f;
  Values queryNorm, keyNorm;
  if (random.between(0, 1)) {
    queryNorm = random.values(ops.headDim);
    keyNorm = random.values(ops.headDim);
  } else {
    ops.rotates = random.between(0, 1) != 0;
  }
  std::vector<int64_t> lengths;
  std::vector<std::vector<AttentionToken>> tokens;
  for (int64_t s = random.between(1, 3); s > 0; --s) {
    lengths.push_back(random.between(1, 150));
    std::vector<Values> projected;
    for (int64_t i = 0; i < lengths.back(); ++i)
      projected.push_back(random.values(ops.projectedValues(), 4));
    tokens.push_back(plainAttention(ops, projected, queryNorm, keyNorm));
  }
  Memory image;
  const int64_t frequencies = image.add(frequenciesOf(ops.headDim));
  const int64_t norms[] = {image.add(queryNorm), image.add(keyNorm)};
  Pages pages(ops.pageBytes, lengths, random);
  std::vector<Batch> batches = randomBatches(lengths, random);
  batches.push_back(someTokens(lengths, random));
  for (const Batch &batch : batches) {
    const auto count = static_cast<int64_t>(batch.positions.size());
    const auto tokenOf = [&](int64_t i) -> const AttentionToken & {
      const auto index = static_cast<size_t>(i);
      return tokens[static_cast<size_t>(batch.sequences[index])]
                   [static_cast<size_t>(batch.positions[index])];
    };
    Memory arena;
    ops.reserve(arena, count, 16 * random.between(0, 1));
    for (int64_t i = 0; i < count; ++i)
      std::ranges::copy(tokenOf(i).projected,
                        arena.at(ops.projected) + i * ops.stride);
    DriverCall call(randomShares(random.between(1, 8), random), count, 3);
    bind(call.context, batch, pages, arena, image);
    call.run([&](int32_t thread) {
      ops.makeTable(&call.context, thread, frequencies);
      qwenDriverBarrier(&call.context, thread);
      ops.append(&call.context, thread, norms[1], kLayer, 1);
      qwenDriverBarrier(&call.context, thread);
      ops.attend(&call.context, thread, norms[0], kLayer, 2);
    });
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      ASSERT_TRUE(
          isSame(arena.at(ops.out) + i * ops.outStride, tokenOf(i).expected))
          << "position " << batch.positions[index] << " of sequence "
          << batch.sequences[index] << ", blocks of " << ops.blockTokens;
      ASSERT_EQ(call.flags[index], kNoFlag);
    }
  }
}
} // namespace

TEST(Attention, IsThatOfEachTokenAlone) {
  for (uint32_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    checkAttention(seed);
    if (testing::Test::HasFatalFailure())
      return;
  }
}
