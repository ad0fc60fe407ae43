//===- WeightPlans.cpp - Plans of formats by name -------------------------===//

#include "qwen/Compiler/WeightPlans.h"

#include "qwen/Import/Checkpoint/ModelScope.h"

#include <algorithm>

using namespace qwen;

namespace {
/// A row of the rules.
struct RuleRow {
  WeightPlan plan;
  std::string_view matrices;
  PlanLayers layers;
  PlanRules::Choice choice, oddChoice;
};

/// The place of a matrix in its model.
struct PlanPlace {
  /// The number of its layer, if it is in one of the text model.
  std::optional<int64_t> layer;
  int64_t layers;
  /// The most query heads that share a KV head.
  int64_t sharedHeads;
};
} // namespace

/// The values of a block in formats with sub-blocks.
static constexpr int64_t kBlock = 256;

static constexpr RuleRow kRules[] = {
#define QWEN_PLAN_RULE(Plan, Matrices, Layers, Format, Method, OddFormat,      \
                       OddMethod)                                              \
  {WeightPlan::Plan,                                                           \
   Matrices,                                                                   \
   PlanLayers::Layers,                                                         \
   {WeightFormat::Format, Quantizer::Method},                                  \
   {WeightFormat::OddFormat, Quantizer::OddMethod}},
#include "qwen/Compiler/WeightPlans.def"
};

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

static bool isAny(const PlanPlace &) { return true; }
static bool isInFirstFour(const PlanPlace &at) {
  return at.layer && *at.layer < 4;
}
static bool isInFirstEighth(const PlanPlace &at) {
  return at.layer && *at.layer < at.layers / 8;
}
/// In the first or the last eighth, or a third of those between.
static bool isOuterOrThird(const PlanPlace &at) {
  return at.layer && (isInFirstEighth(at) || *at.layer >= 7 * at.layers / 8 ||
                      (*at.layer - at.layers / 8) % 3 == 2);
}
static bool hasSharedValues(const PlanPlace &at) { return at.sharedHeads >= 4; }
static bool isOfEighty(const PlanPlace &at) { return at.layers == 80; }

/// By PlanLayers.
static constexpr bool (*kIsIn[])(const PlanPlace &) = {
#define QWEN_PLAN_LAYERS(Layers, Function) Function,
#include "qwen/Compiler/WeightPlans.def"
};

/// The number of the layer whose matrix has this name.
static std::optional<int64_t> layerOf(llvm::StringRef name) {
  int64_t layer = 0;
  if (!name.consume_front(kTextLayers) || name.consumeInteger(10, layer))
    return std::nullopt;
  return layer;
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

PlanRules::PlanRules(WeightPlan plan, mlir::ModuleOp module)
    : width(infoOf(plan).width) {
  module.walk([&](EmbeddingOp op) { hiddenSize = widthOf(op.getResult()); });
  module.walk([&](LmHeadOp op) { heads.insert(op.getWeight()); });
  module.walk([&](AttentionOp op) {
    sharedHeads = std::max<int64_t>(
        sharedHeads, static_cast<int64_t>(op.getHeads() / op.getKvHeads()));
  });
  for (WeightOp weight : module.getOps<WeightOp>())
    layerCount =
        std::max(layerCount, layerOf(weight.getSymName()).value_or(-1) + 1);
  for (const RuleRow &row : kRules)
    if (row.plan == plan)
      rules.push_back({Pattern(row.matrices, std::string(infoOf(plan).name)),
                       row.layers, row.choice, row.oddChoice});
}

PlanRules::Choice PlanRules::of(WeightOp matrix) const {
  const llvm::StringRef own = matrix.getSymName();
  const std::string_view name =
      heads.contains(own) ? "lm_head.weight" : std::string_view(own);
  const PlanPlace place = {layerOf(own), layerCount, sharedHeads};
  // The first rule of a plan matches all matrices.
  const Rule *rule = &rules.front();
  for (const Rule &other : rules)
    if (kIsIn[static_cast<size_t>(other.layers)](place) &&
        other.matrices.matchesPart(name))
      rule = &other;
  const int64_t values =
      width == PlanWidth::Hidden
          ? hiddenSize
          : llvm::cast<mlir::ShapedType>(matrix.getType()).getShape().back();
  return values % kBlock == 0 ? rule->choice : rule->oddChoice;
}
