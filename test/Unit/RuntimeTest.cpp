//===- RuntimeTest.cpp - State of sequences, engine
//--------------------------===//

#include "HandmadeArtifact.h"
#include "TempDir.h"
#include "engine/Engine.h"
#include "engine/SequenceState.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// State of sequences
//===----------------------------------------------------------------------===//

/// A state whose pages have `pageBytes`.
static SequenceState paged(int64_t pages, int64_t pageBytes, int32_t sequences,
                           int64_t context,
                           const std::string &whyNotMore = "") {
  const CacheInfo kv = {"kv", CacheKind::Paged, pageBytes / kPageTokens, {0}};
  return {{&kv, 1},
          {.pages = pages,
           .sequences = sequences,
           .context = context,
           .whyNotMore = whyNotMore}};
}

TEST(SequenceState, PagesAreTakenAsPositionsComeAndGivenBack) {
  SequenceState state = paged(4, 4096, 2, 200);
  EXPECT_EQ(state.pageTableStride(), 4);
  const SequenceId a = state.open();
  state.extend(a, 64);
  EXPECT_EQ(state.freePages(), 3);
  state.extend(a, 65);
  EXPECT_EQ(state.freePages(), 2);
  EXPECT_EQ(state.length(a), 65);
  EXPECT_NE(state.pageTables()[0], state.pageTables()[1]);
  state.truncate(a, 64);
  EXPECT_EQ(state.freePages(), 3);
  state.close(a);
  EXPECT_EQ(state.freePages(), 4);
  EXPECT_FALSE(state.isOpen(a));
}

TEST(SequenceState, BranchesShareFullPagesAndCopyThePartialOne) {
  SequenceState state = paged(6, 64, 3, 300);
  const SequenceId a = state.open();
  state.extend(a, 100);
  const int32_t *tables = state.pageTables();
  const int64_t stride = state.pageTableStride();
  memset(state.caches()[0] + tables[1] * 64, 'x', 64);
  const SequenceId b = state.branch(a, 100);
  EXPECT_EQ(state.length(b), 100);
  EXPECT_EQ(tables[b * stride], tables[a * stride]);
  EXPECT_NE(tables[b * stride + 1], tables[a * stride + 1]);
  EXPECT_EQ(state.caches()[0][tables[b * stride + 1] * 64 + 63], 'x');
  EXPECT_EQ(state.freePages(), 3);
  // The shared page stays until both sequences are closed.
  state.close(a);
  EXPECT_EQ(state.freePages(), 4);
  // A sequence that is truncated within a shared page gets a copy of the page.
  const int32_t shared = tables[b * stride];
  const SequenceId c = state.branch(b, 64);
  EXPECT_EQ(state.freePages(), 4);
  state.truncate(c, 10);
  EXPECT_EQ(tables[b * stride], shared);
  EXPECT_NE(tables[c * stride], shared);
  state.close(b);
  state.close(c);
  EXPECT_EQ(state.freePages(), 6);
}

TEST(SequenceState, SaysWhatRanOut) {
  SequenceState state = paged(2, 64, 2, 200, " (why)");
  const SequenceId a = state.open();
  EXPECT_EQ(state.extend(a, 201), ErrorKind::PastContext);
  state.extend(a, 64);
  EXPECT_EQ(state.extend(a, 200), ErrorKind::NoPage);
  EXPECT_EQ(state.length(a), 64);
  EXPECT_EQ(state.freePages(), 1);
  state.extend(a, 128);
  state.truncate(a, 100);
  EXPECT_EQ(messageOf([&] { state.branch(a, 100); }),
            "all 2 pages of the KV cache are in use (why)");
  EXPECT_EQ(messageOf([&] { state.branch(a, 101); }),
            "sequence 0 has 100 positions and cannot keep 101");
  const SequenceId b = state.open();
  EXPECT_EQ(messageOf([&] { state.open(); }), "all 2 sequences are open");
  EXPECT_EQ(messageOf([&] { state.truncate(b, 1); }),
            "sequence 1 has 0 positions and cannot keep 1");
  state.close(b);
  EXPECT_EQ(messageOf([&] { state.length(b); }), "sequence 1 is not open");
  EXPECT_EQ(messageOf([&] { state.close(-1); }), "sequence -1 is not open");
  EXPECT_NE(messageOf([] { paged(INT64_MAX, 64, 1, 1); }), "");
  EXPECT_NE(messageOf([] { paged(1 << 30, int64_t{1} << 40, 1, 1); }), "");
}

TEST(SequenceState, KeptPagesAreTakenLastAndMayBeSharedUntilThen) {
  SequenceState state = paged(4, 64, 3, 300);
  const SequenceId a = state.open();
  state.extend(a, 150);
  const PageId pages[] = {state.page(a, 0), state.page(a, 1), state.page(a, 2)};
  const uint64_t first = state.keep(pages[0]);
  EXPECT_EQ(state.keep(pages[0]), first);
  EXPECT_NE(state.keep(pages[1]), first);
  state.close(a);
  EXPECT_EQ(state.freePages(), 4);
  const SequenceId b = state.open();
  state.share(b, pages[0]);
  EXPECT_EQ(state.length(b), 64);
  EXPECT_EQ(state.freePages(), 3);
  // The pages that nobody keeps come first, then the one that became free
  // first.
  state.extend(b, 192);
  EXPECT_EQ(state.serial(pages[0]), first);
  EXPECT_NE(state.serial(pages[1]), 0u);
  state.extend(b, 256);
  EXPECT_EQ(state.serial(pages[1]), 0u);
  EXPECT_EQ(state.page(b, 3), pages[1]);
  EXPECT_EQ(state.freePages(), 0);
  // A kept page is never written: within it, it is no longer kept.
  state.truncate(b, 10);
  EXPECT_EQ(state.page(b, 0), pages[0]);
  EXPECT_EQ(state.serial(pages[0]), 0u);
  EXPECT_NE(state.keep(pages[0]), first);
}

TEST(SequenceState, TheFrontOfAKeptPageIsCopied) {
  SequenceState state = paged(2, 64, 2, 300);
  const SequenceId a = state.open(), b = state.open();
  state.extend(a, 30);
  const PageId page = state.page(a, 0);
  std::ranges::fill(std::span(state.caches()[0] + page * 64, 64), uint8_t{7});
  const uint64_t serial = state.keep(page);
  state.close(a);
  state.shareFront(b, page, 20);
  EXPECT_EQ(state.length(b), 20);
  EXPECT_NE(state.page(b, 0), page);
  EXPECT_EQ(state.caches()[0][state.page(b, 0) * 64 + 63], 7);
  EXPECT_EQ(state.serial(page), serial);
  // The last free page is taken itself.
  const SequenceId c = state.open();
  state.shareFront(c, page, 30);
  EXPECT_EQ(state.page(c, 0), page);
  EXPECT_EQ(state.serial(page), 0u);
  state.truncate(b, 0);
  state.close(b);
  state.open();
  state.extend(b, 64);
  EXPECT_NE(messageOf([&] { state.shareFront(b, page, 1); }), "");
}

TEST(SequenceState, EqualPagesBecomeOne) {
  SequenceState state = paged(4, 64, 2, 300);
  const SequenceId a = state.open(), b = state.open();
  state.extend(a, 64);
  state.extend(b, 100);
  state.keep(state.page(a, 0));
  state.merge(b, 0, state.page(a, 0));
  EXPECT_EQ(state.page(b, 0), state.page(a, 0));
  EXPECT_EQ(state.freePages(), 2);
  state.close(a);
  EXPECT_EQ(state.freePages(), 2);
  state.close(b);
  EXPECT_EQ(state.freePages(), 4);
}

//===----------------------------------------------------------------------===//
// Engine
//===----------------------------------------------------------------------===//

namespace {
/// The tokens of the fake model, one in a line: "id sequence position", and "*"
/// if it was wanted; "|" after each call.
std::string trace;
int64_t flaggedPosition;

/// The float of a position in layer 0 of the pool.
float &slot(const Context *context, int64_t sequence, int64_t position) {
  const int32_t page = context->pageTables[sequence * context->pageTableStride +
                                           position / kPageTokens];
  return reinterpret_cast<float *>(context->caches[0] +
                                   int64_t{page} * 8192)[position % 64];
}

/// Stores each id in the cache, and returns the sum of the ids of the sequence
/// so far. A model with one attention needs the same calls.
void fakeForward(const Context *context, int32_t thread, int32_t) {
  context->barrier(context->barrierState, thread);
  if (thread == 0) {
    for (int64_t t = 0; t < context->tokens(); ++t) {
      const int32_t position = context->positions[t];
      slot(context, context->sequences[t], position) =
          static_cast<float>(context->tokenIds[t]);
      if (position == flaggedPosition)
        context->counts[kTokensOfCall].flags[t] = 1;
      const auto has = [t](const CountOfCall &count) {
        return std::count(count.tokens, count.tokens + count.number, t) != 0;
      };
      const bool wanted = has(context->counts[kWantedTokens]) ||
                          has(context->counts[kHiddenTokens]);
      trace += std::to_string(context->tokenIds[t]) + " " +
               std::to_string(context->sequences[t]) + " " +
               std::to_string(position) + (wanted ? "*" : "") + "\n";
    }
    trace += "|";
    const auto sumOf = [&](int32_t t) {
      float sum = 0;
      for (int32_t p = 0; p <= context->positions[t]; ++p)
        sum += slot(context, context->sequences[t], p);
      return sum;
    };
    const CountOfCall &wanted = context->counts[kWantedTokens],
                      &hidden = context->counts[kHiddenTokens];
    for (int64_t row = 0; row < wanted.number; ++row)
      context->result[row * 48] = sumOf(wanted.tokens[row]);
    for (int64_t row = 0; row < hidden.number; ++row)
      context->hidden[row * 32] = -sumOf(hidden.tokens[row]);
  }
  context->barrier(context->barrierState, thread);
}

class EngineTest : public testing::Test {
protected:
  void SetUp() override {
    trace.clear();
    flaggedPosition = -1;
  }

  std::vector<std::pair<size_t, float>> run(Engine &engine,
                                            const std::vector<Token> &batch) {
    std::vector<std::pair<size_t, float>> result;
    engine.forward(batch, [&](size_t index, std::span<float> row) {
      EXPECT_EQ(row.size(), batch[index].row == RowKind::Hidden ? 32u : 40u);
      result.emplace_back(index, row[0]);
    });
    return result;
  }

  Manifest manifest = parseManifest(handmadeManifest(), "f", 64);
  using Rows = std::vector<std::pair<size_t, float>>;
};
} // namespace

TEST_F(EngineTest, SplitsAtTokensAndRows) {
  ThreadPool pool(2);
  Engine engine(manifest, nullptr, {fakeForward}, pool);
  const SequenceId s = engine.state().open();
  std::vector<Token> batch;
  for (int i = 0; i < 10; ++i)
    batch.push_back({i, s, i, i >= 6});
  // 8 tokens or 2 rows a call.
  EXPECT_EQ(run(engine, batch), (Rows{{6, 21}, {7, 28}, {8, 36}, {9, 45}}));
  EXPECT_EQ(trace, "0 0 0\n1 0 1\n2 0 2\n3 0 3\n4 0 4\n5 0 5\n6 0 6*\n"
                   "7 0 7*\n|8 0 8*\n9 0 9*\n|");
  trace.clear();
  for (Token &token : batch) {
    token.position += 10;
    token.wanted = true;
  }
  EXPECT_EQ(run(engine, batch).size(), 10u);
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '|'), 5);
}

TEST_F(EngineTest, EverySplitAndMixtureGivesTheSame) {
  for (int64_t callTokens : {1, 3, 8})
    for (int32_t threads : {1, 3}) {
      ThreadPool pool(threads);
      Engine engine(manifest, nullptr, {fakeForward}, pool,
                    {.sequences = 2, .callTokens = callTokens});
      const SequenceId a = engine.state().open();
      const SequenceId b = engine.state().open();
      std::vector<Token> batch;
      for (int i = 0; i < 70; ++i) {
        batch.push_back({i % 40, a, i, i == 69});
        if (i % 2)
          batch.push_back({1, b, i / 2, i == 69});
      }
      const float sum = 40 * 39 / 2 + 30 * 29 / 2;
      EXPECT_EQ(run(engine, batch), (Rows{{103, sum}, {104, 35}}));
    }
}

// Two models on two threads of the caller.
TEST_F(EngineTest, ModelsShareThreads) {
  ThreadPool pool(3);
  Engine engines[] = {{manifest, nullptr, {fakeForward}, pool},
                      {manifest, nullptr, {fakeForward}, pool}};
  std::vector<std::jthread> callers;
  for (int32_t i = 0; i < 2; ++i)
    callers.emplace_back([&, i] {
      const SequenceId s = engines[i].state().open();
      for (int64_t position = 0; position < 90; ++position)
        EXPECT_EQ(run(engines[i], {{i + 1, s, position, true}}),
                  (Rows{{0, static_cast<float>((i + 1) * (position + 1))}}));
    });
}

// Between calls, and from two threads of the caller.
TEST_F(EngineTest, ThreadsShareItems) {
  for (int32_t threads : {1, 3}) {
    ThreadPool pool(threads);
    Engine engine(manifest, nullptr, {fakeForward}, pool);
    const SequenceId s = engine.state().open();
    std::vector<std::jthread> callers;
    for (int i = 0; i < 2; ++i)
      callers.emplace_back([&] {
        for (size_t items : {0, 1, 2, 50}) {
          std::vector<int> visits(items);
          engine.forEach(items, [&](size_t item) { ++visits[item]; });
          EXPECT_EQ(std::ranges::count(visits, 1), items);
        }
      });
    callers.clear();
    EXPECT_EQ(run(engine, {{1, s, 0, true}}), (Rows{{0, 1}}));
  }
}

TEST_F(EngineTest, GivesHiddenRowsBesideLogits) {
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {fakeForward}, pool);
  const SequenceId s = engine.state().open();
  constexpr RowKind kHidden = RowKind::Hidden;
  // 2 rows of each kind a call.
  EXPECT_EQ(run(engine, {{4, s, 0, true, kHidden},
                         {5, s, 1, true},
                         {6, s, 2, true, kHidden},
                         {7, s, 3, true},
                         {8, s, 4, true, kHidden}}),
            (Rows{{0, -4}, {1, 9}, {2, -15}, {3, 22}, {4, -30}}));
  EXPECT_EQ(std::ranges::count(trace, '|'), 2);
}

TEST_F(EngineTest, AProgramTakesTheTokensOfItsModel) {
  ProgramInfo &other = manifest.programs.emplace_back(manifest.forward());
  other.name = "other";
  other.model.vocabSize = 30;
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {fakeForward, fakeForward}, pool);
  const SequenceId s = engine.state().open();
  const Token last = {29, s, 0, true}, past = {30, s, 1, true};
  engine.call("other", {&last, 1});
  EXPECT_EQ(messageOf([&] { engine.call("other", {&past, 1}); }),
            "token id 30 of sequence 0 is not in the model's vocabulary of 30");
  EXPECT_EQ(run(engine, {{30, s, 1, true}}), (Rows{{0, 59}}));
}

TEST_F(EngineTest, NeedsTheImagesOfTheManifest) {
  manifest.images = {{"draft", 64}};
  ThreadPool pool(1);
  const uint8_t bytes[64] = {};
  EXPECT_EQ(
      messageOf([&] { Engine(manifest, nullptr, {fakeForward}, pool); }),
      "handmade needs the weight image \"draft\" of 64 bytes, and has none");
  const auto errorWith = [&](size_t size) {
    const WeightImage images[] = {{}, {bytes, size}};
    return messageOf([&] { Engine(manifest, images, {fakeForward}, pool); });
  };
  EXPECT_EQ(errorWith(63), "handmade needs the weight image \"draft\" of 64 "
                           "bytes, and has 63");
  EXPECT_EQ(errorWith(64), "");
}

TEST_F(EngineTest, RefusesRowsThatTheModelLacks) {
  manifest.model.output.kind = OutputKind::None;
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {fakeForward}, pool);
  const SequenceId s = engine.state().open();
  EXPECT_THROW(run(engine, {{4, s, 0, true}}), NoOutput);
  EXPECT_EQ(trace, "");
  // Tokens before the last one run without rows.
  EXPECT_EQ(run(engine, {{4, s, 0, false}}), Rows());
  EXPECT_EQ(run(engine, {{5, s, 1, true, RowKind::Hidden}}), (Rows{{0, -9}}));
}

TEST_F(EngineTest, RefusesTokensThatCannotRun) {
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {fakeForward}, pool);
  const SequenceId s = engine.state().open();
  const auto error = [&](const std::vector<Token> &batch) {
    return messageOf([&] { run(engine, batch); });
  };
  EXPECT_EQ(error({{40, s, 0, true}}),
            "token id 40 of sequence 0 is not in the model's vocabulary of "
            "40");
  EXPECT_EQ(error({{-1, s, 0, true}}),
            "token id -1 of sequence 0 is not in the model's vocabulary of "
            "40");
  EXPECT_EQ(trace, "");
  EXPECT_EQ(error({{1, s, 1, true}}),
            "position 1 of sequence 0 does not follow: 0 is next");
  EXPECT_EQ(error({{1, s, 0, true}, {1, s, 0, true}}),
            "position 0 of sequence 0 does not follow: 1 is next");
  EXPECT_EQ(error({{1, 1, 0, true}}), "sequence 1 is not open");
  std::vector<Token> batch;
  for (int i = 0; i <= 100; ++i)
    batch.push_back({1, s, i, false});
  EXPECT_EQ(error(batch), "position 100 of sequence 0 is past the context of "
                          "100 that the model was compiled for");
  EXPECT_EQ(engine.state().length(s), 100);
  EXPECT_NE(messageOf([&] {
              Engine(manifest, nullptr, {fakeForward}, pool,
                     {.callTokens = -1});
            }),
            "");
}

TEST_F(EngineTest, AFlagNamesSequencePositionAndOp) {
  ThreadPool pool(2);
  Engine engine(manifest, nullptr, {fakeForward}, pool, {.callTokens = 2});
  const SequenceId s = engine.state().open();
  flaggedPosition = 3;
  const auto error = [&] {
    return messageOf([&] {
      run(engine, {{1, s, 0, false},
                   {1, s, 1, false},
                   {1, s, 2, false},
                   {1, s, 3, true}});
    });
  };
  const std::string message =
      "a number is not finite at sequence 0, position 3, in second; the file "
      "may be damaged, which qwen-run info --check finds";
  EXPECT_EQ(error(), message);
  // The positions before it stay.
  EXPECT_EQ(engine.state().length(s), 3);
  engine.state().truncate(s, 0);
  manifest.programs[0].caches.front().format = KvFormat::F16;
  EXPECT_EQ(error(), message);
  engine.state().truncate(s, 0);
  manifest.programs[0].work[1].kind = OpKind::Append;
  EXPECT_EQ(error(), message + ", or keys or values are too large for f16, "
                               "which qwen-opt --kv f32 avoids");
}

TEST_F(EngineTest, AFullCacheLeavesOtherSequencesAsTheyWere) {
  ThreadPool pool(1);
  Engine engine(manifest, nullptr, {fakeForward}, pool,
                {.sequences = 2, .kvPages = 1});
  const SequenceId a = engine.state().open();
  const SequenceId b = engine.state().open();
  EXPECT_EQ(messageOf([&] { run(engine, {{1, a, 0, true}, {1, b, 0, true}}); }),
            "sequence 1 has no page for position 0: all 1 pages of the KV "
            "cache are in use");
  EXPECT_EQ(engine.state().length(a), 1);
  EXPECT_EQ(engine.state().length(b), 0);
  EXPECT_EQ(run(engine, {{7, a, 1, true}}), (Rows{{0, 8}}));
}

// Each of four sequences stops for another reason, and one runs to its end. The
// result does not depend on the calls.
TEST_F(EngineTest, ASequenceStopsAlone) {
  for (int64_t callTokens : {1, 3, 8}) {
    ThreadPool pool(2);
    Engine engine(manifest, nullptr, {fakeForward}, pool,
                  {.sequences = 5, .kvPages = 6, .callTokens = callTokens});
    SequenceId open[5];
    for (SequenceId &sequence : open)
      sequence = engine.state().open();
    const auto [fine, pastContext, noPage, invalid, notFinite] = open;
    std::vector<Token> batch;
    for (int i = 0; i <= 100; ++i) {
      if (i < 100)
        batch.push_back({1, fine, i, i == 99});
      batch.push_back({2, pastContext, i, i >= 99});
      if (i < 70)
        batch.push_back({3, noPage, i, i == 63});
      if (i < 9)
        batch.push_back({i == 5 ? 99 : 4, invalid, i, i == 4 || i == 8});
    }
    std::vector<std::pair<size_t, float>> rows;
    const auto keep = [&](size_t index, std::span<float> row) {
      rows.emplace_back(index, row[0]);
    };
    std::span<const Failure> failures = engine.run(batch, keep);
    std::vector<std::string> texts;
    for (const Failure &failure : failures)
      texts.push_back(engine.describe(failure));
    EXPECT_EQ(texts, (std::vector<std::string>{
                         "token id 99 of sequence 3 is not in the model's "
                         "vocabulary of 40",
                         "sequence 2 has no page for position 64: all 6 pages "
                         "of the KV cache are in use",
                         "position 100 of sequence 1 is past the context of "
                         "100 that the model was compiled for"}));
    std::vector<float> sums;
    for (const auto &row : rows)
      sums.push_back(row.second);
    EXPECT_EQ(sums, (std::vector<float>{20, 192, 100, 200}));
    EXPECT_EQ(engine.state().length(fine), 100);
    EXPECT_EQ(engine.state().length(pastContext), 100);
    EXPECT_EQ(engine.state().length(noPage), 64);
    EXPECT_EQ(engine.state().length(invalid), 5);

    // A number that is not finite, in a call with a token that has no page.
    for (SequenceId sequence : open)
      engine.state().close(sequence);
    for (SequenceId &sequence : open)
      sequence = engine.state().open();
    EXPECT_EQ(engine.state().extend(invalid, 100), std::nullopt);
    EXPECT_EQ(engine.state().extend(noPage, 100), std::nullopt);
    rows.clear();
    batch.clear();
    flaggedPosition = 62;
    for (int i = 0; i < 4; ++i)
      batch.push_back({1, fine, i, false});
    for (int i = 0; i < 66; ++i)
      batch.push_back({1, notFinite, i, i == 61 || i == 65});
    for (int i = 4; i < 60; ++i)
      batch.push_back({1, fine, i, i == 59});
    failures = engine.run(batch, keep);
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].kind, ErrorKind::NotFinite);
    EXPECT_EQ(failures[0].position, 62);
    EXPECT_EQ(failures[0].op, 1u);
    EXPECT_EQ(engine.state().length(notFinite), 62);
    EXPECT_EQ(rows, (Rows{{65, 62}, {125, 60}}));
    flaggedPosition = -1;
  }
}

TEST(EngineArtifact, RunsTheCodeOfAnArtifact) {
  const std::string path = HandmadeArtifact().write("engine.qwen");
  const Artifact artifact(path);
  ThreadPool pool(2);
  Engine engine(artifact, pool);
  const SequenceId s = engine.state().open();
  int rows = 0;
  const std::vector<Token> batch = {{1, s, 0, true}};
  engine.forward(batch, [&](size_t, std::span<float>) { ++rows; });
  EXPECT_EQ(rows, 1);
  unlink(path.c_str());
}

TEST(EngineArtifact, NamesAMissingFunction) {
  std::string manifest = handmadeManifest();
  manifest.replace(manifest.find("\"test\""), 6, "\"best\"");
  const std::string path = HandmadeArtifact(manifest).write("best.qwen");
  const Artifact artifact(path);
  ThreadPool pool(1);
  EXPECT_EQ(messageOf([&] { Engine engine(artifact, pool); }),
            path + " is damaged: it has no function forward.best");
  unlink(path.c_str());
}
