//===- LookupBeside.cpp - Lookup beside a model that drafts ---------------===//
//
// A text that repeats itself costs lookup nothing, and other text has drafts of
// the model. DraftPace chooses for each answer and step.
//
//===----------------------------------------------------------------------===//

#include "engine/DraftPace.h"
#include "engine/Engine.h"
#include "engine/drafters/Drafters.h"
#include "engine/drafters/ForwardingDrafter.h"

#include <algorithm>

using namespace qwen;

namespace {
class LookupBeside final : public ForwardingDrafter {
public:
  LookupBeside(std::unique_ptr<Drafter> model, Engine &engine)
      : ForwardingDrafter(std::move(model)), lookup(makeLookup(engine)) {
    ofModel.reserve(static_cast<size_t>(engine.state().maxSequences()));
  }

  void begin(const Track &track) override {
    ForwardingDrafter::begin(track);
    lookup->begin(track);
  }
  int64_t strength(const Track &track) override {
    const int64_t own = ForwardingDrafter::strength(track);
    return own < 0 ? lookup->strength(track) : own;
  }
  int64_t otherStrength(const Track &track) override {
    return lookup->strength(track);
  }
  void prepare(std::span<const DraftOrder> orders) override {
    ofModel.clear();
    for (const DraftOrder &order : orders)
      if (order.strength >= kModelStrength)
        ofModel.push_back(order);
    ForwardingDrafter::prepare(ofModel);
  }
  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    if (std::ranges::count(ofModel, &track, &DraftOrder::track))
      ForwardingDrafter::draft(track, most, tokens);
    else
      lookup->draft(track, most, tokens);
  }
  void end(const Track &track) override {
    lookup->end(track);
    ForwardingDrafter::end(track);
  }

private:
  const std::unique_ptr<Drafter> lookup;
  /// The orders of this step for drafts of the model.
  std::vector<DraftOrder> ofModel;
};
} // namespace

std::unique_ptr<Drafter> qwen::makeLookupBeside(std::unique_ptr<Drafter> model,
                                                Engine &engine) {
  return std::make_unique<LookupBeside>(std::move(model), engine);
}
