//===- KvLayoutTest.cpp - Keys and values in a format of this test --------===//
//
// Formats that no table has go through the driver and the pages of sequences:
// nothing between the kernels knows how many bytes a key has.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"
#include "IntegerKv.h"
#include "engine/PageStore.h"
#include "engine/SequenceState.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

TEST(KvLayout, AHeadHasCodesThenScales) {
  EXPECT_EQ(layoutOf(KvFormat::F32).headBytes(64), 64 * 64 * 4);
  EXPECT_EQ(layoutOf(KvFormat::F16).headBytes(128), 64 * 128 * 2);
  EXPECT_EQ(layoutOf(KvFormat::Q8).slotBytes(64), 68);
  EXPECT_EQ(kSigned8.scalesOffset(128), 64 * 128);
  EXPECT_EQ(kSigned8.headBytes(128), 64 * (128 + 4));
  EXPECT_EQ(kUnsigned4.scalesOffset(24), 64 * 12);
  EXPECT_EQ(kUnsigned4.headBytes(24), 64 * (12 + 2));
}

template <KvLayout Layout> static void checkRounding() {
  using Kv = IntegerKv<Layout>;
  constexpr int64_t kHeadDim = 24;
  Random random(1);
  std::vector<uint8_t> page(static_cast<size_t>(Layout.headBytes(kHeadDim)));
  std::vector<Values> rows;
  for (int64_t slot = 0; slot < kPageTokens; ++slot) {
    rows.push_back(random.values(kHeadDim, 4));
    ASSERT_EQ(Kv::append(rows.back().data(), kHeadDim, slot, page.data()), 0);
  }
  for (int64_t slot = 0; slot < kPageTokens; ++slot)
    for (int64_t i = 0; i < kHeadDim; ++i) {
      const float x = rows[static_cast<size_t>(slot)][static_cast<size_t>(i)];
      // Half of a step of the largest magnitude, 4.
      EXPECT_NEAR(Kv::value(page.data(), kHeadDim, slot, i), x,
                  4.01 / (double{1 << Layout.codeBits} - 2))
          << "slot " << slot << ", value " << i;
    }
}

TEST(KvLayout, CodesAreTheNearestIntegers) {
  checkRounding<kSigned8>();
  checkRounding<kUnsigned4>();
}

namespace {
/// Sequences of the runtime, whose keys and values the driver appends and
/// reads.
class Sequences {
public:
  explicit Sequences(const KvKernels &kernels)
      : ops(opsOf(kernels)), state(makeState()),
        frequencies(image.add(frequenciesOf(ops.headDim))) {}

  /// A text of `length` tokens that begins with the first `same` ones of
  /// `text`.
  std::vector<Values> textLike(const std::vector<Values> &text, int64_t same,
                               int64_t length) {
    std::vector<Values> result(text.begin(), text.begin() + same);
    while (std::ssize(result) < length)
      result.push_back(random.values(ops.projectedValues(), 4));
    return result;
  }

  /// Runs the tokens of `text` that `sequence` lacks, a part of them in each
  /// call, and compares their attention with a plain loop over the text.
  void run(SequenceState &in, SequenceId sequence,
           const std::vector<Values> &text);

  SequenceState makeState() const {
    const CacheInfo cache = {
        "kv", CacheKind::Paged, ops.layerBytes() / kPageTokens, {0}};
    return {{&cache, 1}, {.pages = 16, .sequences = 6, .context = 256}};
  }

private:
  static AttentionOps opsOf(const KvKernels &kernels) {
    AttentionOps ops{};
    ops.kvHeads = 2;
    ops.groupQueries = 2;
    ops.headDim = 24;
    ops.cache = kernels;
    ops.pageBytes = ops.layerBytes();
    ops.blockTokens = 5;
    ops.eps = 1e-6f;
    return ops;
  }

  AttentionOps ops;
  Random random{7};
  Memory image;

public:
  SequenceState state;

private:
  int64_t frequencies;
};
} // namespace

void Sequences::run(SequenceState &in, SequenceId sequence,
                    const std::vector<Values> &text) {
  const std::vector<AttentionToken> tokens = plainAttention(ops, text, {}, {});
  while (in.length(sequence) < std::ssize(text)) {
    const int64_t begin = in.length(sequence);
    const int64_t end = std::min(begin + random.between(1, 40),
                                 static_cast<int64_t>(std::ssize(text)));
    ASSERT_EQ(in.extend(sequence, end), std::nullopt);
    Batch batch;
    for (int64_t i = begin; i < end; ++i) {
      batch.sequences.push_back(sequence);
      batch.positions.push_back(static_cast<int32_t>(i));
    }
    Memory arena;
    ops.reserve(arena, end - begin, 0);
    for (int64_t i = begin; i < end; ++i)
      std::ranges::copy(text[static_cast<size_t>(i)],
                        arena.at(ops.projected) + (i - begin) * ops.stride);
    DriverCall call(equalShares(2), end - begin, 3);
    call.context.images = image.images();
    call.context.arena = arena.at<uint8_t>(0);
    call.context.caches = in.caches();
    call.context.pageTables = in.pageTables();
    call.context.pageTableStride = in.pageTableStride();
    call.context.sequences = batch.sequences.data();
    call.context.positions = batch.positions.data();
    call.run([&](int32_t thread) {
      ops.makeTable(&call.context, thread, frequencies);
      qwenDriverBarrier(&call.context, thread);
      ops.append(&call.context, thread, -1, 0, 1);
      qwenDriverBarrier(&call.context, thread);
      ops.attend(&call.context, thread, -1, 0, 2);
    });
    for (int64_t i = begin; i < end; ++i)
      ASSERT_TRUE(isSame(arena.at(ops.out) + (i - begin) * ops.outStride,
                         tokens[static_cast<size_t>(i)].expected))
          << "position " << i;
  }
}

/// Shares, copies, merges and stores pages: their bytes, scales too, are those
/// of the tokens that were appended.
static void checkSequences(const KvKernels &kernels) {
  Sequences all(kernels);
  SequenceState &state = all.state;
  const std::vector<Values> text = all.textLike({}, 0, 150);
  const SequenceId first = state.open();
  all.run(state, first, {text.begin(), text.begin() + 70});

  // A branch copies the page that is not full.
  const SequenceId branch = state.branch(first, 66);
  all.run(state, branch, all.textLike(text, 66, 140));
  all.run(state, first, text);

  // Kept pages, and the front of one.
  for (int64_t page : {0, 1})
    state.keep(state.page(first, page));
  const SequenceId shared = state.open();
  state.share(shared, state.page(first, 0));
  state.shareFront(shared, state.page(first, 1), 5);
  all.run(state, shared, all.textLike(text, 69, 131));

  // A page of the same tokens in place of its own.
  const SequenceId merged = state.open();
  all.run(state, merged, {text.begin(), text.begin() + 64});
  state.merge(merged, 0, state.page(first, 0));
  EXPECT_EQ(state.page(merged, 0), state.page(first, 0));
  all.run(state, merged, all.textLike(text, 64, 90));

  // A page that goes through a store, to another process.
  std::vector<uint8_t> bytes(static_cast<size_t>(state.pageBytes()));
  state.readPage(state.page(first, 0), bytes);
  SequenceState other = all.makeState();
  const SequenceId adopted = other.open();
  ASSERT_TRUE(other.adoptPage(adopted, bytes));
  all.run(other, adopted, all.textLike(text, 64, 100));

  // The same, straight to its place.
  std::vector<std::span<uint8_t>> parts(other.pageParts());
  const int64_t free = other.freePages();
  for (bool isFilled : {false, true}) {
    const PageId page = other.beginPage(parts);
    EXPECT_EQ(other.freePages(), free - 1);
    ASSERT_EQ(bytesOf(parts), bytes.size());
    copyToParts(bytes, parts);
    EXPECT_EQ(other.endPage(page, isFilled), isFilled);
    EXPECT_EQ(other.serial(page) != 0, isFilled);
    EXPECT_EQ(other.freePages(), free);
    if (!isFilled)
      continue;
    const SequenceId begun = other.open();
    other.share(begun, page);
    all.run(other, begun, all.textLike(text, 64, 100));
  }
  // `forward` has not run its last position.
  const PageId page = other.beginPage(parts);
  parts[0][0] = kPageTokens - 1;
  EXPECT_FALSE(other.endPage(page, true));
  EXPECT_EQ(other.serial(page), 0u);

  // Back into a page that others share.
  state.truncate(first, 40);
  all.run(state, first, all.textLike(text, 40, 80));
  state.truncate(merged, 64);
  all.run(state, merged, all.textLike(text, 64, 90));
}

TEST(KvLayout, PagesOfSequencesKeepCodesAndScales) {
  checkSequences(IntegerKv<kSigned8>::kernels());
  checkSequences(IntegerKv<kUnsigned4>::kernels());
  checkSequences(KvFormat::F16);
  checkSequences(KvFormat::Q8);
}
