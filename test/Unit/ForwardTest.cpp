//===- ForwardTest.cpp - A compiled model through the engine --------------===//
//
// Rows of generated code: hidden values, and the rows of wanted tokens only.
// test/Integration compares the logits themselves with goldens.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace qwen;

namespace {
constexpr int32_t kIds[] = {5, 17, 300, 4, 250, 9, 9};
using Rows = std::vector<std::vector<float>>;

/// The artifact of test/Inputs/checkpoints/qwen2-tied-f32 in f32.
const char *path() {
  const char *file = std::getenv("QWEN_FORWARD");
  return file ? file : "forward.qwen";
}

/// The rows of the tokens with an index in `wanted`, in one call.
Rows run(const Artifact &artifact, const std::function<RowKind(size_t)> &kind,
         const std::vector<size_t> &wanted, int32_t threads = 1) {
  ThreadPool pool(threads);
  Engine engine(artifact, pool);
  const SequenceId sequence = engine.state().open();
  std::vector<Token> batch;
  for (size_t i = 0; i < std::size(kIds); ++i)
    batch.push_back({kIds[i], sequence, static_cast<int64_t>(i),
                     std::find(wanted.begin(), wanted.end(), i) != wanted.end(),
                     kind(i)});
  Rows rows;
  engine.forward(batch, [&](size_t index, std::span<float> row) {
    EXPECT_EQ(index, wanted[rows.size()]);
    rows.emplace_back(row.begin(), row.end());
  });
  return rows;
}

RowKind logits(size_t) { return RowKind::Logits; }
RowKind hidden(size_t) { return RowKind::Hidden; }

const std::vector<size_t> kAll = {0, 1, 2, 3, 4, 5, 6};

/// Offsets of the embedding of `id` in the weights, from its panel.
std::vector<uint64_t> embeddingOffsets(const Artifact &artifact, int64_t id) {
  for (const TensorInfo &tensor : artifact.manifest().tensors) {
    if (tensor.segments.empty() ||
        tensor.segments[0].name != "model.embed_tokens.weight")
      continue;
    const int64_t k = tensor.shape[1];
    std::vector<uint64_t> offsets;
    for (int64_t i = 0; i < k; ++i)
      offsets.push_back(tensor.offset + static_cast<uint64_t>(
                                            (id / 16 * k + i) * 16 + id % 16) *
                                            sizeof(float));
    return offsets;
  }
  ADD_FAILURE() << "no embedding";
  return {};
}

std::vector<float> embeddingRow(const Artifact &artifact, int64_t id) {
  std::vector<float> row;
  for (uint64_t offset : embeddingOffsets(artifact, id))
    row.push_back(
        *reinterpret_cast<const float *>(artifact.weights() + offset));
  return row;
}
} // namespace

TEST(Forward, LogitsAreHiddenRowsTimesTheTiedEmbedding) {
  const Artifact artifact(path());
  const Rows hidden = run(artifact, ::hidden, kAll, 2);
  const Rows logits = run(artifact, ::logits, kAll, 2);
  ASSERT_EQ(hidden.size(), std::size(kIds));
  for (int64_t id = 0; id < artifact.manifest().model.vocabSize; ++id) {
    const std::vector<float> row = embeddingRow(artifact, id);
    for (size_t i = 0; i < hidden.size(); ++i) {
      ASSERT_EQ(hidden[i].size(), row.size());
      // One chain of fma in the order of k (docs/numerics.md).
      float sum = 0;
      for (size_t k = 0; k < row.size(); ++k)
        sum = std::fma(row[k], hidden[i][k], sum);
      ASSERT_EQ(sum, logits[i][static_cast<size_t>(id)]) << id << ", row " << i;
    }
  }
}

TEST(Forward, WantedRowsAreThoseOfAllRows) {
  const Artifact artifact(path());
  for (const auto &kind : {logits, hidden}) {
    const Rows all = run(artifact, kind, kAll);
    for (const std::vector<size_t> &wanted :
         {std::vector<size_t>{6}, {0}, {1, 4}, {0, 2, 3, 5, 6}, {}}) {
      const Rows some = run(artifact, kind, wanted, 3);
      ASSERT_EQ(some.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(some[i], all[wanted[i]]);
    }
  }
}

TEST(Forward, ACallGivesLogitsAndHiddenRows) {
  const Artifact artifact(path());
  const Rows some = run(
      artifact,
      [](size_t i) { return i % 3 == 1 ? RowKind::Hidden : RowKind::Logits; },
      kAll, 3);
  for (size_t i : kAll)
    EXPECT_EQ(some[i], run(artifact, i % 3 == 1 ? hidden : logits, {i})[0]);
}

// With a token whose embedding is so large that its norm is not finite.
TEST(Forward, ANumberThatIsNotFiniteStopsItsSequenceOnly) {
  constexpr int32_t kLarge = 250;
  const Artifact artifact(path());
  const ElfMapping code = artifact.loadCode();
  const auto size = static_cast<size_t>(artifact.header().weights.size);
  const Mapping weights = Mapping::memory(size, "the weights");
  std::copy_n(artifact.weights(), size, weights.data());
  for (uint64_t offset : embeddingOffsets(artifact, kLarge))
    *reinterpret_cast<float *>(weights.data() + offset) = 1e30f;
  const auto rowsWith = [&](int32_t third, size_t failing) {
    ThreadPool pool(2);
    Engine engine(artifact.manifest(), weights.data(),
                  findPrograms(artifact, code), pool,
                  {.sequences = 3, .callTokens = 8});
    std::vector<Token> batch;
    for (int sequence = 0; sequence < 3; ++sequence)
      engine.state().open();
    for (int64_t position = 0; position < 5; ++position)
      for (int32_t sequence = 0; sequence < 3; ++sequence)
        batch.push_back({sequence == 1 && position == 3 ? third : 7 + sequence,
                         sequence, position, true, RowKind::Hidden});
    std::vector<std::pair<size_t, std::vector<float>>> rows;
    const std::span<const Failure> failures =
        engine.run(batch, [&](size_t index, std::span<float> row) {
          if (index % 3 != 1 || index / 3 < 3)
            rows.emplace_back(index, std::vector(row.begin(), row.end()));
        });
    EXPECT_EQ(failures.size(), failing);
    for (const Failure &failure : failures) {
      EXPECT_EQ(failure.kind, ErrorKind::NotFinite);
      EXPECT_EQ(failure.sequence, 1);
      EXPECT_EQ(failure.position, 3);
    }
    EXPECT_EQ(engine.state().length(0), 5);
    EXPECT_EQ(engine.state().length(1), failing ? 3 : 5);
    return rows;
  };
  EXPECT_EQ(rowsWith(kLarge, 1), rowsWith(8, 0));
}
