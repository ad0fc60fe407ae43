//===- MakeEngine.cpp - Starts the engine of a model ----------------------===//

#include "model/MakeEngine.h"

#include "engine/drafters/DraftModel.h"
#include "engine/drafters/Drafters.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <utility>

using namespace qwen;

namespace {
/// A draft model and its engine.
struct Drafting {
  explicit Drafting(const std::string &file) : model(file) {}

  const Model model;
  std::unique_ptr<Engine> engine;
};
} // namespace

/// Throws Error unless the ids of `draft` stand for the same tokens.
static void checkTokens(const Model &model, const Model &draft) {
  const std::string both = draft.path() + " cannot draft for " + model.path();
  const auto differ = [&](const std::string &what, int64_t wrong,
                          int64_t right) {
    if (wrong != right)
      throw Error(both + ": it has " + std::to_string(wrong) + " " + what +
                  ", not " + std::to_string(right));
  };
  if (model.hasTokenizer() != draft.hasTokenizer())
    throw Error(both + ": " + (model.hasTokenizer() ? draft : model).path() +
                " has no tokenizer, and both need the same one");
  if (!model.hasTokenizer())
    return differ("ids", draft.info().vocabSize, model.info().vocabSize);
  const Tokenizer &right = model.tokenizer(), &wrong = draft.tokenizer();
  differ("tokens", wrong.vocabSize(), right.vocabSize());
  for (int32_t id = 0; id < right.vocabSize(); ++id)
    if (wrong.tokenBytes(id) != right.tokenBytes(id))
      throw Error(both + ": its token " + std::to_string(id) + " is " +
                  quote(wrong.tokenBytes(id)) + ", not " +
                  quote(right.tokenBytes(id)));
}

/// The engine of a smaller model, with pages for the answers of `model`.
static std::shared_ptr<Engine>
startDraftModel(const Model &model, const std::string &file,
                const std::shared_ptr<ThreadPool> &pool,
                const std::shared_ptr<MemoryBudget> &budget,
                EngineOptions options) {
  const auto drafting = std::make_shared<Drafting>(file);
  const Manifest &manifest = drafting->model.manifest();
  manifest.model.output.requireDrafts(drafting->model.path());
  checkTokens(model, drafting->model);
  options.snapshotBytes = 0;
  options.callTokens = 0;
  // Each of its sequences steps back.
  options.speculate = Speculate::Off;
  options.kvPages = std::max(1, options.sequences) * draftPagesOf(manifest);
  drafting->engine = std::make_unique<Engine>(drafting->model.artifact(), pool,
                                              budget, options);
  return {drafting, drafting->engine.get()};
}

std::unique_ptr<Engine>
qwen::makeEngine(const Model &model, std::shared_ptr<ThreadPool> pool,
                 const std::shared_ptr<MemoryBudget> &budget,
                 const EngineOptions &options, const std::string &draftModel,
                 const uint8_t *weights) {
  // Its pages come first, because the model's take what is left.
  std::shared_ptr<Engine> drafts;
  if (!draftModel.empty() && options.speculate == Speculate::Auto &&
      stepBackOf(model.manifest()) > 0)
    drafts = startDraftModel(model, draftModel, pool, budget, options);
  auto engine = std::make_unique<Engine>(model.artifact(), std::move(pool),
                                         budget, options, weights);
  engine->setDraftEngine(std::move(drafts));
  return engine;
}
