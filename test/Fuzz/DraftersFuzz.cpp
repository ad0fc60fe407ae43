//===- DraftersFuzz.cpp - Drafts, and what drafters say of them -----------===//
//
// Whatever a drafter drafts and says, answers have the tokens of plain
// decoding. The input also chooses prompts, pages, and lookup or a model as
// drafter.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "HashModel.h"

#include "engine/Batcher.h"
#include "engine/drafters/DraftModel.h"
#include "engine/drafters/Drafters.h"

#include <fuzzer/FuzzedDataProvider.h>

using namespace qwen;
using namespace qwen::fuzz;
using namespace qwen::test;

namespace {
/// Drafts any tokens, and says anything that a drafter may.
class AnyDrafter final : public Drafter {
public:
  explicit AnyDrafter(FuzzedDataProvider &input)
      : input(input), most(input.ConsumeIntegralInRange<int64_t>(1, 9)) {
    if (input.ConsumeBool())
      share = input.ConsumeFloatingPointInRange(0.0, 1.0);
  }

  int64_t strength(const Track &) override { return anyStrength(); }
  int64_t otherStrength(const Track &) override { return anyStrength(); }
  std::optional<double> usualShare() const override { return share; }
  int64_t mostDrafts() const override { return most; }
  double secondsBehind(const Track &) override {
    return input.ConsumeFloatingPointInRange(0.0, 1.0);
  }
  void prepare(std::span<const DraftOrder> orders) override {
    made.clear();
    while (made.size() < 9 && input.ConsumeBool())
      made.push_back({input.ConsumeIntegralInRange<int64_t>(1, 9),
                      input.ConsumeFloatingPointInRange(0.0, 0.1)});
  }
  std::span<const DraftCall> calls() const override { return made; }
  void draft(const Track &, int64_t count,
             std::vector<int32_t> &tokens) override {
    require(count >= 1 && count <= most, "more drafts than there may be");
    while (std::ssize(tokens) <= count && input.ConsumeBool())
      tokens.push_back(input.ConsumeIntegralInRange<int32_t>(-1, 40));
  }
  void accept(const Track &, int64_t drafted, int64_t accepted) override {
    require(0 <= accepted && accepted <= drafted && drafted <= most,
            "more drafts were right than ran");
  }

private:
  int64_t anyStrength() {
    const auto of = input.ConsumeIntegralInRange<int64_t>(-1, 300);
    return of >= 0 && input.ConsumeBool() ? kModelStrength + of : of;
  }

  FuzzedDataProvider &input;
  const int64_t most;
  std::optional<double> share;
  std::vector<DraftCall> made;
};

/// A request, and the tokens that its answer must have.
struct Asked {
  std::vector<int32_t> expected, drawn;
  bool isWhole = false;
};
} // namespace

static Request requestOf(FuzzedDataProvider &input) {
  Request request;
  request.prompt.ids =
      squareTokens(input.ConsumeIntegralInRange<int64_t>(1, 90),
                   input.ConsumeIntegralInRange<int32_t>(0, 3));
  request.maxTokens = input.ConsumeIntegralInRange<int64_t>(1, 40);
  request.sampling.temperature =
      static_cast<float>(input.ConsumeIntegralInRange(0, 2));
  request.sampling.repetitionPenalty = input.ConsumeBool() ? 1.3F : 1.0F;
  request.sampling.seed = input.ConsumeIntegral<uint8_t>();
  if (input.ConsumeBool())
    request.stopTokens = {7, 20};
  return request;
}

static MakeDrafterFn drafterOf(FuzzedDataProvider &input) {
  switch (input.ConsumeIntegralInRange(0, 3)) {
  case 0:
    return makeLookup;
  case 1:
    return [](Engine &engine) {
      return makeDraftModel(engine, *engine.draftEngine());
    };
  case 2:
    return [](Engine &engine) { return makeDrafter(Speculate::Auto, engine); };
  default:
    return [&](Engine &) { return std::make_unique<AnyDrafter>(input); };
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static ThreadPool pool(1);
  FuzzedDataProvider input(data, size);
  const bool isFixed = input.ConsumeBool();
  Manifest manifest =
      hashManifest(400, 64, isFixed, isFixed ? kHashStepBack : 0);
  manifest.programs[0].limits.rows =
      input.ConsumeIntegralInRange<int64_t>(1, 12);
  const Manifest draftManifest = hashManifest(400, 64);
  const auto sequences = input.ConsumeIntegralInRange<int32_t>(1, 3);
  const EngineOptions options = {
      .sequences = sequences,
      .kvPages = input.ConsumeIntegralInRange<int64_t>(3, 9)};
  Engine engine(manifest, nullptr,
                {isFixed ? steppingHashForward : hashForward}, pool, options);
  engine.setDraftEngine(std::make_shared<Engine>(
      draftManifest, nullptr, std::vector<ForwardFn *>{hashForward}, pool,
      EngineOptions{.sequences = sequences}));
  BatcherOptions rules = {.paced = false,
                          .drafter = drafterOf(input),
                          .drafts =
                              input.ConsumeIntegralInRange<int64_t>(0, 9)};
  Batcher batcher(engine, rules);
  std::vector<Asked> all(input.ConsumeIntegralInRange<size_t>(1, 4));
  for (size_t i = 0; i < all.size(); ++i) {
    Request request = requestOf(input);
    Asked &of = all[i];
    of.expected = hashAnswer(request);
    request.onToken = [&](const TokenEvent &event) {
      of.drawn.push_back(event.id);
      return true;
    };
    request.onEnd = [&](const Ending &ending) {
      of.isWhole = ending.error.empty();
    };
    batcher.add(
        std::make_unique<Job>(std::move(request), i + 1, manifest.model));
  }
  while (!batcher.isIdle())
    batcher.step();
  for (const Asked &of : all)
    require(of.isWhole && of.drawn == of.expected,
            "drafts change the tokens of an answer");
  return 0;
}
