//===- MtpTest.cpp - The draft heads of checkpoints -----------------------===//
//
// Compiles hybrids with their draft heads. The logits of the head have the bits
// of plain C++, also where it goes on from its own rows, and in f32 they are
// near those of transformers. Answers with drafts of the head have the bits of
// answers without, and the drafts are those of plain C++.
//
//===----------------------------------------------------------------------===//

#include "CompiledHead.h"
#include "ReferenceReader.h"

#include "engine/Step.h"
#include "engine/drafters/Drafters.h"
#include "engine/drafters/ForwardingDrafter.h"
#include "qwen/ABI/Program.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;
using namespace qwen::test;

namespace {
/// Tokens that a head drafts behind a prompt.
constexpr int kDepth = 4;

/// Appends a row.
void append(Values &to, std::span<const float> row) {
  to.insert(to.end(), row.begin(), row.end());
}

int32_t likeliest(const Values &logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) -
                              logits.begin());
}

/// The likeliest one of `tokens`, or of all if there are none.
int32_t likeliest(const Values &logits, const std::vector<int32_t> &tokens) {
  if (tokens.empty())
    return likeliest(logits);
  return std::ranges::max(
      tokens, {}, [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
}

class Mtp : public testing::TestWithParam<HeadCase> {
protected:
  /// Runs a prompt in `forward`. Returns the rows of its tokens, one after
  /// another.
  Values runForward(std::span<const int32_t> prompt, SequenceId sequence) {
    std::vector<Token> batch;
    for (int32_t id : prompt)
      batch.push_back({id, sequence, std::ssize(batch), false});
    engine.forward(batch, [](size_t, std::span<float>) {});
    Values rows;
    for (size_t i = 0; i < batch.size(); ++i)
      append(rows, engine.row(kForwardName, kHiddenRowsName, i));
    return rows;
  }

  /// Runs the head over `ids` from position `first` on, which follow the tokens
  /// with these rows.
  void runHead(std::span<const int32_t> ids, int64_t first, const Values &rows,
               SequenceId sequence) {
    std::vector<Token> batch;
    for (int32_t id : ids)
      batch.push_back({id, sequence, first + std::ssize(batch), true});
    const InputRows given = {kHiddenRowsName, rows};
    engine.call(kDraftHeadName, batch, {&given, 1});
  }

  Values rowOf(std::string_view name, size_t index) const {
    Values row;
    append(row, engine.row(kDraftHeadName, name, index));
    return row;
  }

  CompiledHead model{GetParam()};
  const Safetensors golden{model.path + "/golden.safetensors"};
  Engine engine = model.engine();
};

/// The greatest difference of logits as a part of their range.
double differenceOf(const Values &found, const Values &expected) {
  EXPECT_EQ(found.size(), expected.size());
  const auto [least, most] = std::ranges::minmax(expected);
  double greatest = 0;
  for (size_t i = 0; i < found.size(); ++i)
    greatest = std::max(greatest, std::fabs(double{found[i]} - expected[i]) /
                                      (most - least));
  return greatest;
}
} // namespace

TEST_P(Mtp, HasTheLogitsOfTransformersAndTheBitsOfPlainCpp) {
  const auto &[name, format, rotated] = GetParam();
  const ReferenceDraftHead head =
      ModelReader(model.path, format, {}).readDraftHead(KvFormat::F32);
  for (int number = 0;
       golden.tensors().contains(std::to_string(number) + ".prompt");
       ++number) {
    const std::string prefix = std::to_string(number) + ".";
    if (!golden.tensors().contains(prefix + "mtp"))
      continue;
    std::vector<int32_t> prompt;
    for (int64_t id : golden.get<int64_t>(prefix + "prompt"))
      prompt.push_back(static_cast<int32_t>(id));
    const SequenceId sequence = engine.state().open();
    const Values rows = runForward(prompt, sequence);
    const auto width = std::ssize(rows) / std::ssize(prompt);
    const std::span<const int32_t> following(prompt.begin() + 1, prompt.end());
    runHead(following, 0, {rows.begin(), rows.end() - width}, sequence);

    ReferenceSequence expected(head.model);
    Values logits, row, found;
    for (size_t i = 0; i < following.size(); ++i) {
      const auto at = rows.begin() + static_cast<int64_t>(i) * width;
      row = expected.run(head.input(following[i], {at, at + width}));
      found = rowOf(kLogitsName, i);
      append(logits, found);
      if (!rotated) {
        ASSERT_EQ(found, head.model.logits(row)) << prefix << i;
      }
    }
    if (format == WeightFormat::F32) {
      EXPECT_LE(differenceOf(logits, golden.get<float>(prefix + "mtp")), 2e-5)
          << prefix;
    }
    // It goes on from its own rows.
    Values own = rowOf(kHiddenRowsName, following.size() - 1);
    for (int step = 0; step < kDepth && !rotated; ++step) {
      ASSERT_EQ(own, row);
      const int32_t best = likeliest(found);
      runHead({&best, 1}, std::ssize(following) + step, own, sequence);
      row = expected.run(head.input(best, row));
      own = rowOf(kHiddenRowsName, 0);
      found = rowOf(kLogitsName, 0);
      ASSERT_EQ(found, head.model.logits(row)) << "draft " << step;
    }
    engine.state().close(sequence);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Mtp,
    testing::Values(HeadCase{"qwen3_5-bf16", WeightFormat::F32, false},
                    HeadCase{"qwen3_5-bf16", WeightFormat::F32, true},
                    HeadCase{"qwen3_5-bf16", WeightFormat::Q8_0, false},
                    HeadCase{"qwen3_5-moe-bf16", WeightFormat::F32, false},
                    HeadCase{"qwen3-next-bf16", WeightFormat::F32, false}),
    [](const auto &info) {
      std::string name = info.param.model;
      std::ranges::replace(name, '-', '_');
      return name + "_" + std::string(weightFormatName(info.param.weights)) +
             (info.param.rotated ? "_rotated" : "");
    });

namespace {
/// The rows of `forward` that the drafter keeps.
constexpr int64_t kKept = 32;

/// Compares the drafts of the head with plain C++, which reads all rows anew.
class CheckedMtp final : public ForwardingDrafter {
public:
  CheckedMtp(Engine &engine, const ReferenceDraftHead &head, int64_t &checked,
             std::vector<int32_t> tokens = {})
      : ForwardingDrafter(makeMtp(engine)), head(head), checked(checked),
        allowed(std::move(tokens)) {}

  void begin(const Track &track) override {
    ForwardingDrafter::begin(track);
    prompt = track.settledSize();
  }
  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    ForwardingDrafter::draft(track, most, tokens);
    ReferenceSequence sequence(head.model);
    const std::span<const int32_t> settled = track.settled();
    Values row;
    for (auto i = static_cast<size_t>(std::max<int64_t>(0, prompt - kKept));
         i + 1 < settled.size(); ++i)
      row = sequence.run(head.input(settled[i + 1], rows[i]));
    for (int32_t token : tokens) {
      EXPECT_EQ(token, likeliest(head.model.logits(row), allowed));
      row = sequence.run(head.input(token, row));
      ++checked;
    }
  }
  void follow(Step &step) override {
    ForwardingDrafter::follow(step);
    for (const auto &[track, position, row] : step.tokens()) {
      const auto at = static_cast<size_t>(position);
      rows.resize(std::max(rows.size(), at + 1));
      rows[at].clear();
      append(rows[at], step.row(kForwardName, kHiddenRowsName, row));
    }
  }

private:
  const ReferenceDraftHead &head;
  int64_t &checked;
  const std::vector<int32_t> allowed;
  int64_t prompt = 0;
  std::vector<Values> rows;
};
} // namespace

TEST_F(MtpDrafts, ChangeNoAnswer) {
  const EngineOptions plain = {.sequences = 3};
  const std::vector<Answer> expected = answer(0, 6, plain, {});
  EXPECT_EQ(counts.draftTokens, 0);
  EngineOptions drafting = plain;
  for (const Speculate which : {Speculate::Mtp, Speculate::Auto})
    for (const int64_t drafts : {0, 1, 3, 7}) {
      drafting.speculate = which;
      EXPECT_EQ(answer(0, 6, drafting, {.drafts = drafts}), expected) << drafts;
      EXPECT_GT(counts.draftTokens, 0);
    }
  // Answers lose their sequences and begin again. The prompt tokens of a step
  // follow the clock: on a busy machine answers may come one after another.
  drafting.kvPages = 4;
  bool hasPreempted = false;
  for (int runs = 0; runs < 20 && !hasPreempted; ++runs) {
    EXPECT_EQ(answer(0, 6, drafting, {.drafts = 3}), expected);
    EXPECT_GT(counts.draftTokens, 0);
    hasPreempted = counts.preemptions > 0;
  }
  EXPECT_TRUE(hasPreempted);
}

TEST_F(MtpDrafts, AreThoseOfPlainCpp) {
  const ReferenceDraftHead head =
      ModelReader(model.path, WeightFormat::Q8_0, {})
          .readDraftHead(KvFormat::F32);
  for (const int number : {0, 1, 3}) {
    int64_t checked = 0;
    const MakeDrafterFn make = [&](Engine &engine) {
      return std::make_unique<CheckedMtp>(engine, head, checked);
    };
    answer(number, 1, {}, {.drafter = make, .drafts = 3});
    EXPECT_GT(checked, 40);
  }
}

// Every third token.
TEST_F(MtpDrafts, HaveTheTokensOfATrimmedHead) {
  std::vector<int32_t> tokens;
  for (int32_t id = 1; id < 320; id += 3)
    tokens.push_back(id);
  const HeadCase of = {"qwen3_5-bf16", WeightFormat::Q8_0, false};
  CompiledHead trimmed(of, tokens);
  EXPECT_EQ(trimmed.manifest.draftHead()->model.tokens, tokens);
  EXPECT_EQ(trimmed.manifest.draftHead()->logits()->width, 107);
  EXPECT_TRUE(trimmed.manifest.forward().model.tokens.empty());
  const ReferenceDraftHead head =
      ModelReader(model.path, of.weights, {}).readDraftHead(KvFormat::F32);
  int64_t checked = 0;
  const MakeDrafterFn make = [&](Engine &engine) {
    return std::make_unique<CheckedMtp>(engine, head, checked, tokens);
  };
  const std::vector<Answer> expected = answer(3, 1, {}, {});
  EXPECT_EQ(answer(trimmed, 3, 1, {}, {.drafter = make, .drafts = 3}),
            expected);
  EXPECT_GT(checked, 40);
}

// A call for each place, whatever the number of answers is.
TEST_F(MtpDrafts, OfABatchTakeACallForEachPlace) {
  /// Counts the calls of the head.
  class Counting final : public ForwardingDrafter {
  public:
    Counting(Engine &engine, std::vector<DraftCall> &made)
        : ForwardingDrafter(makeMtp(engine)), made(made) {}
    void prepare(std::span<const DraftOrder> orders) override {
      ForwardingDrafter::prepare(orders);
      made.insert(made.end(), calls().begin(), calls().end());
      if (orders.size() == 4)
        EXPECT_LE(std::ssize(calls()),
                  std::ranges::max(orders, {}, &DraftOrder::count).count);
    }

  private:
    std::vector<DraftCall> &made;
  };
  std::vector<DraftCall> made;
  const EngineOptions options = {.sequences = 4};
  const std::vector<Answer> expected = answer(0, 4, options, {});
  const MakeDrafterFn make = [&](Engine &engine) {
    return std::make_unique<Counting>(engine, made);
  };
  EXPECT_EQ(answer(0, 4, options, {.drafter = make, .drafts = 3}), expected);
  EXPECT_GT(std::ranges::count(made, 4, &DraftCall::rows), 30);
}

/// The head of a model, and the token whose numbers it finds not finite.
static ForwardFn *wholeHead;
static int32_t brokenId;

static void breakingHead(const Context *context, int32_t thread,
                         int32_t threads) {
  wholeHead(context, thread, threads);
  for (int64_t t = 0; thread == 0 && t < context->tokens(); ++t)
    if (context->tokenIds[t] == brokenId)
      context->counts[kTokensOfCall].flags[t] = 0;
}

// A number that is not finite ends the drafts of its answer, and of no other.
TEST_F(MtpDrafts, EndWhereANumberIsNotFinite) {
  /// Counts the drafts of each answer.
  class Counting final : public ForwardingDrafter {
  public:
    Counting(Engine &engine, std::array<int64_t, 4> &counts)
        : ForwardingDrafter(makeMtp(engine)), counts(counts) {}
    void draft(const Track &track, int64_t most,
               std::vector<int32_t> &tokens) override {
      ForwardingDrafter::draft(track, most, tokens);
      counts.at(track.job().id() - 1) += std::ssize(tokens);
    }

  private:
    std::array<int64_t, 4> &counts;
  };
  std::array<int64_t, 4> drafts = {};
  const MakeDrafterFn make = [&](Engine &engine) {
    return std::make_unique<Counting>(engine, drafts);
  };
  const EngineOptions options = {.sequences = 4};
  const std::vector<Answer> expected = answer(0, 4, options, {});
  // The first token of the second answer that no other text has, not at once.
  const auto isElsewhere = [&](int32_t id) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::vector<int32_t> prompt =
          requestOf(static_cast<int>(i)).prompt.ids;
      if (std::ranges::count(prompt, id) ||
          (i != 1 && std::ranges::count(expected[i].ids, id)))
        return true;
    }
    return false;
  };
  const auto own = std::find_if_not(expected[1].ids.begin() + 8,
                                    expected[1].ids.end(), isElsewhere);
  ASSERT_NE(own, expected[1].ids.end());
  brokenId = *own;
  wholeHead = std::exchange(model.entries[1], &breakingHead);
  EXPECT_EQ(answer(0, 4, options, {.drafter = make, .drafts = 3}), expected);
  model.entries[1] = wholeHead;
  EXPECT_LT(drafts[1], drafts[0]);
}

TEST_F(MtpDrafts, NeedAHead) {
  Manifest without = model.manifest;
  without.programs.pop_back();
  EXPECT_EQ(bestDrafter(without), Speculate::Lookup);
  EXPECT_EQ(bestDrafter(model.manifest), Speculate::Mtp);
  EXPECT_EQ(whyNoDrafts(Speculate::Mtp, without),
            "it has no draft head; compile a checkpoint that has one, without "
            "--no-mtp");
  EXPECT_EQ(whyNoDrafts(Speculate::Mtp, model.manifest), "");
}
