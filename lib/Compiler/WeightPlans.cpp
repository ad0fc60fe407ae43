//===- WeightPlans.cpp - Plans of formats by name -------------------------===//

#include "qwen/Compiler/WeightPlans.h"

using namespace qwen;

namespace {
/// A row of the rules.
struct RuleRow {
  WeightPlan plan;
  std::string_view matrices;
  PlanRules::Choice choice, oddChoice;
};
} // namespace

/// The values of a block in formats with sub-blocks.
static constexpr int64_t kBlock = 256;

static constexpr RuleRow kRules[] = {
#define QWEN_PLAN_RULE(Plan, Matrices, Format, Method, OddFormat, OddMethod)   \
  {WeightPlan::Plan,                                                           \
   Matrices,                                                                   \
   {WeightFormat::Format, Quantizer::Method},                                  \
   {WeightFormat::OddFormat, Quantizer::OddMethod}},
#include "qwen/Compiler/WeightPlans.def"
};

/// Whether the hidden size is no multiple of a block.
static bool isOdd(mlir::ModuleOp module) {
  int64_t hidden = 0;
  module.walk([&](EmbeddingOp op) {
    hidden = llvm::cast<mlir::ShapedType>(op.getType()).getShape().back();
  });
  return hidden % kBlock != 0;
}

PlanRules::PlanRules(WeightPlan plan, mlir::ModuleOp module) {
  const bool odd = isOdd(module);
  module.walk([&](LmHeadOp op) { heads.insert(op.getWeight()); });
  for (const RuleRow &row : kRules)
    if (row.plan == plan)
      rules.push_back({Pattern(row.matrices, std::string(infoOf(plan).name)),
                       odd ? row.oddChoice : row.choice});
}

PlanRules::Choice PlanRules::of(WeightOp matrix) const {
  const llvm::StringRef own = matrix.getSymName();
  const std::string_view name =
      heads.contains(own) ? "lm_head.weight" : std::string_view(own);
  // The first rule of a plan matches all matrices.
  const Rule *rule = &rules.front();
  for (const Rule &other : rules)
    if (other.matrices.matchesPart(name))
      rule = &other;
  return rule->choice;
}
