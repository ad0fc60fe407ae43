//===- RuntimeTest.cpp - KV cache and engine ------------------------------===//

#include "HandmadeArtifact.h"
#include "engine/Engine.h"
#include "engine/KvCache.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// KV cache
//===----------------------------------------------------------------------===//

TEST(KvCache, PagesAreTakenAsPositionsComeAndGivenBack) {
  KvCache cache(4, 4096, 2, 200);
  EXPECT_EQ(cache.pageTableStride(), 4);
  const SequenceId a = cache.open();
  cache.extend(a, 64);
  EXPECT_EQ(cache.freePages(), 3);
  cache.extend(a, 65);
  EXPECT_EQ(cache.freePages(), 2);
  EXPECT_EQ(cache.length(a), 65);
  EXPECT_NE(cache.pageTables()[0], cache.pageTables()[1]);
  cache.truncate(a, 64);
  EXPECT_EQ(cache.freePages(), 3);
  cache.close(a);
  EXPECT_EQ(cache.freePages(), 4);
  EXPECT_FALSE(cache.isOpen(a));
}

TEST(KvCache, BranchesShareFullPagesAndCopyThePartialOne) {
  KvCache cache(6, 64, 3, 300);
  const SequenceId a = cache.open();
  cache.extend(a, 100);
  const int32_t *tables = cache.pageTables();
  const int64_t stride = cache.pageTableStride();
  memset(cache.pool() + tables[1] * 64, 'x', 64);
  const SequenceId b = cache.branch(a);
  EXPECT_EQ(cache.length(b), 100);
  EXPECT_EQ(tables[b * stride], tables[a * stride]);
  EXPECT_NE(tables[b * stride + 1], tables[a * stride + 1]);
  EXPECT_EQ(cache.pool()[tables[b * stride + 1] * 64 + 63], 'x');
  EXPECT_EQ(cache.freePages(), 3);
  // The shared page stays until both sequences are closed.
  cache.close(a);
  EXPECT_EQ(cache.freePages(), 4);
  // A sequence that is truncated within a shared page gets a copy of the page.
  const SequenceId c = cache.branch(b);
  const int32_t shared = tables[b * stride];
  cache.truncate(c, 10);
  EXPECT_EQ(tables[b * stride], shared);
  EXPECT_NE(tables[c * stride], shared);
  cache.close(b);
  cache.close(c);
  EXPECT_EQ(cache.freePages(), 6);
}

TEST(KvCache, SaysWhatRanOut) {
  KvCache cache(2, 64, 2, 200, " (why)");
  const SequenceId a = cache.open();
  EXPECT_EQ(errorOf([&] { cache.extend(a, 201); }),
            "sequence 0 would have 201 positions when the model was compiled "
            "for a context of 200");
  cache.extend(a, 64);
  EXPECT_EQ(errorOf([&] { cache.extend(a, 200); }),
            "the KV cache is full: sequence 0 needs 3 more pages and 1 of 2 "
            "are free (why)");
  EXPECT_EQ(cache.length(a), 64);
  EXPECT_EQ(cache.freePages(), 1);
  cache.extend(a, 128);
  cache.truncate(a, 100);
  EXPECT_EQ(errorOf([&] { cache.branch(a); }),
            "the KV cache is full: all of its 2 pages are in use (why)");
  const SequenceId b = cache.open();
  EXPECT_EQ(errorOf([&] { cache.open(); }), "all 2 sequences are open");
  EXPECT_EQ(errorOf([&] { cache.truncate(b, 1); }),
            "sequence 1 has 0 positions and cannot keep 1");
  cache.close(b);
  EXPECT_EQ(errorOf([&] { cache.length(b); }), "sequence 1 is not open");
  EXPECT_EQ(errorOf([&] { cache.close(-1); }), "sequence -1 is not open");
  EXPECT_NE(errorOf([] { KvCache(INT64_MAX, 64, 1, 1); }), "");
  EXPECT_NE(errorOf([] { KvCache(1 << 30, int64_t{1} << 40, 1, 1); }), "");
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
  return reinterpret_cast<float *>(context->kvPool +
                                   int64_t{page} * 8192)[position % 64];
}

/// Stores each id in the cache, and returns the sum of the ids of the sequence
/// so far. A model with one attention needs the same calls.
void fakeForward(const Context *context, int32_t thread, int32_t) {
  context->barrier(context->barrierState, thread);
  if (thread == 0) {
    for (int64_t t = 0; t < context->tokens; ++t) {
      const int32_t position = context->positions[t];
      slot(context, context->sequences[t], position) =
          static_cast<float>(context->tokenIds[t]);
      if (position == flaggedPosition)
        context->flags[t] = 1;
      const bool wanted =
          std::count(context->wantedRows, context->wantedRows + context->rows,
                     t) != 0;
      trace += std::to_string(context->tokenIds[t]) + " " +
               std::to_string(context->sequences[t]) + " " +
               std::to_string(position) + (wanted ? "*" : "") + "\n";
    }
    trace += "|";
    const int64_t stride = context->wantHidden ? 32 : 48;
    for (int64_t row = 0; row < context->rows; ++row) {
      const int32_t t = context->wantedRows[row];
      float sum = 0;
      for (int32_t p = 0; p <= context->positions[t]; ++p)
        sum += slot(context, context->sequences[t], p);
      context->result[row * stride] = sum;
    }
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
                                            const std::vector<Token> &batch,
                                            RowKind kind = RowKind::Logits) {
    std::vector<std::pair<size_t, float>> result;
    engine.forward(
        batch,
        [&](size_t index, std::span<float> row) {
          EXPECT_EQ(row.size(), kind == RowKind::Hidden ? 32u : 40u);
          result.emplace_back(index, row[0]);
        },
        kind);
    return result;
  }

  Manifest manifest = parseManifest(handmadeManifest(), "f", 64);
  using Rows = std::vector<std::pair<size_t, float>>;
};
} // namespace

TEST_F(EngineTest, SplitsAtTokensAndRows) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 2});
  const SequenceId s = engine.cache().open();
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
      Engine engine(
          manifest, nullptr, fakeForward,
          {.threads = threads, .sequences = 2, .callTokens = callTokens});
      const SequenceId a = engine.cache().open();
      const SequenceId b = engine.cache().open();
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

TEST_F(EngineTest, GivesHiddenRows) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 1});
  const SequenceId s = engine.cache().open();
  EXPECT_EQ(run(engine, {{4, s, 0, true}, {5, s, 1, true}}, RowKind::Hidden),
            (Rows{{0, 4}, {1, 9}}));
}

TEST_F(EngineTest, RefusesTokensThatCannotRun) {
  Engine engine(manifest, nullptr, fakeForward, {.threads = 1});
  const SequenceId s = engine.cache().open();
  const auto error = [&](const std::vector<Token> &batch) {
    return errorOf([&] { run(engine, batch); });
  };
  EXPECT_EQ(error({{40, s, 0, true}}),
            "token id 40 of sequence 0 is not in the model's vocabulary of "
            "40");
  EXPECT_EQ(error({{-1, s, 0, true}}),
            "token id -1 of sequence 0 is not in the model's vocabulary of "
            "40");
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
  EXPECT_EQ(trace, "");
  EXPECT_EQ(engine.cache().length(s), 0);
  EXPECT_NE(errorOf([&] {
              Engine(manifest, nullptr, fakeForward, {.callTokens = -1});
            }),
            "");
}

TEST_F(EngineTest, AFlagNamesSequencePositionAndOp) {
  Engine engine(manifest, nullptr, fakeForward,
                {.threads = 2, .callTokens = 2});
  const SequenceId s = engine.cache().open();
  flaggedPosition = 3;
  const auto error = [&] {
    return errorOf([&] {
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
  // The positions of the first call stay; those of the second are undone.
  EXPECT_EQ(engine.cache().length(s), 2);
  engine.cache().truncate(s, 0);
  manifest.kv.format = KvFormat::F16;
  EXPECT_EQ(error(), message);
  engine.cache().truncate(s, 0);
  manifest.work[1].kind = "append";
  EXPECT_EQ(error(), message + ", or keys or values are too large for f16, "
                               "which qwen-opt --kv f32 avoids");
}

TEST_F(EngineTest, AFullCacheLeavesSequencesAsTheyWere) {
  Engine engine(manifest, nullptr, fakeForward,
                {.threads = 1, .sequences = 2, .kvPages = 1});
  const SequenceId a = engine.cache().open();
  const SequenceId b = engine.cache().open();
  EXPECT_EQ(errorOf([&] { run(engine, {{1, a, 0, true}, {1, b, 0, true}}); }),
            "the KV cache is full: sequence 1 needs 1 more pages and 0 of 1 "
            "are free");
  EXPECT_EQ(engine.cache().length(a), 0);
  EXPECT_EQ(run(engine, {{7, a, 0, true}}), (Rows{{0, 7}}));
}

TEST(EngineArtifact, RunsTheCodeOfAnArtifact) {
  const std::string path = HandmadeArtifact().write("engine.qwen");
  const Artifact artifact(path);
  Engine engine(artifact, {.threads = 2});
  const SequenceId s = engine.cache().open();
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
  EXPECT_EQ(errorOf([&] { Engine engine(artifact, {.threads = 1}); }),
            path + " is damaged: it has no function forward.best");
  unlink(path.c_str());
}
