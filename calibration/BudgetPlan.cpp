//===- BudgetPlan.cpp - Formats within a budget ---------------------------===//

#include "calibration/BudgetPlan.h"

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Quantizers/Allocation.h"
#include "qwen/Support/Error.h"
#include "qwen/Transforms/FusedProducts.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;

/// Times that a plan is made smaller, because a file has more bytes than the
/// sum of its matrices says.
static constexpr int kMostAttempts = 8;

namespace {
/// One run of planBudget().
class BudgetSearch {
public:
  BudgetSearch(const PlanInput &input, const Sensitivities &losses,
               const Budget &budget)
      : input(input), losses(losses), budget(budget) {
    makeLists();
    if (lists.empty())
      throw Error(part::subject("--budget") + " " + part::found(budget.text) +
                  " has nothing to choose: all matrices are floats or keep "
                  "their integers");
    makeGroups();
  }

  BudgetPlan run();
  /// The plan of the fewest bytes, within the budget.
  BudgetPlan smallest() const;

private:
  bool limitsLoss() const { return budget.kind == BudgetKind::Divergence; }
  bool limitsTokens() const {
    return budget.kind == BudgetKind::TokensPerSecond;
  }
  /// What a size costs by the budget.
  uint64_t costOf(const PlanSize &size) const {
    return limitsTokens() ? size.tokenBytes : size.fileBytes;
  }
  void makeLists();
  void makeGroups();
  double bytesOf(const std::string &matrix, WeightFormat format) const;
  double valuesOf(const std::string &matrix) const {
    return static_cast<double>(input.model.source(matrix)->shape().values());
  }
  /// By format.
  std::vector<double> lossesOf(const std::string &matrix) const;
  MatrixFormats formatsOf(const std::vector<size_t> &choices) const;
  double lossOf(const std::vector<size_t> &choices) const {
    return losses.activations + sumOf(groups, choices).loss;
  }
  BudgetPlan planOf(const std::vector<size_t> &choices) const {
    BudgetPlan plan;
    plan.formats = formatsOf(choices);
    plan.size = input.sizeOf(plan.formats);
    plan.loss = lossOf(choices);
    return plan;
  }
  /// The most bytes that the budget allows.
  double mostBytes() const;
  std::vector<size_t> fewestBytes() const {
    return *allocate(exchanged(groups), std::numeric_limits<double>::max());
  }
  BudgetPlan withinBytes() const;
  BudgetPlan withinLoss() const;
  void addUniform(BudgetPlan &plan) const;
  /// `bytes` in the unit of the budget.
  std::string inUnit(double bytes) const;
  [[noreturn]] void failByBytes(double least) const;

  const PlanInput &input;
  const Sensitivities &losses;
  const Budget &budget;
  /// The matrices of each group.
  std::vector<std::vector<std::string>> lists;
  std::vector<AllocationGroup> groups;
};
} // namespace

void BudgetSearch::makeLists() {
  llvm::StringSet<> seen;
  for (const auto &fused : fusedMatrices(input.model.module)) {
    std::vector<std::string> list;
    for (const std::string &name : fused)
      if (input.model.formats.contains(name) && seen.insert(name).second)
        list.push_back(name);
    if (!list.empty())
      lists.push_back(std::move(list));
  }
  for (const auto &[name, format] : input.model.formats)
    if (!seen.contains(name))
      lists.push_back({name});
}

double BudgetSearch::bytesOf(const std::string &matrix,
                             WeightFormat format) const {
  const WeightShape shape = input.model.source(matrix)->shape();
  const auto bytes =
      static_cast<double>(packedBytes(format, shape.outputs(), shape.k()));
  return limitsTokens() ? bytes * input.tokenPart(matrix) : bytes;
}

std::vector<double> BudgetSearch::lossesOf(const std::string &matrix) const {
  const auto found = losses.losses.find(matrix);
  if (found != losses.losses.end())
    return found->second;
  // A draft head, which the text does not run: as much as others of its size.
  std::vector<double> sums(std::size(kBudgetFormats));
  double values = 0;
  for (const auto &[name, measured] : losses.losses) {
    values += valuesOf(name.str());
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += measured[i];
  }
  for (double &sum : sums)
    sum *= values > 0 ? valuesOf(matrix) / values : 0;
  return sums;
}

void BudgetSearch::makeGroups() {
  for (const std::vector<std::string> &list : lists) {
    AllocationGroup &group = groups.emplace_back(std::size(kBudgetFormats));
    for (const std::string &name : list) {
      const std::vector<double> own = lossesOf(name);
      for (size_t i = 0; i < group.size(); ++i) {
        group[i].loss += own[i];
        group[i].cost += bytesOf(name, kBudgetFormats[i]);
      }
    }
  }
}

MatrixFormats
BudgetSearch::formatsOf(const std::vector<size_t> &choices) const {
  MatrixFormats formats;
  for (size_t i = 0; i < lists.size(); ++i)
    for (const std::string &name : lists[i])
      formats[name] = kBudgetFormats[choices[i]];
  return formats;
}

double BudgetSearch::mostBytes() const {
  switch (budget.kind) {
  case BudgetKind::BitsPerWeight:
    return budget.value * static_cast<double>(input.parameters) / 8;
  case BudgetKind::TokensPerSecond:
    return budget.bytesPerSecond / budget.value;
  default:
    return budget.value;
  }
}

std::string BudgetSearch::inUnit(double bytes) const {
  switch (budget.kind) {
  case BudgetKind::BitsPerWeight:
    // Rounded up, so that the number is enough.
    return llvm::formatv(
        "{0:f3}bpw",
        std::ceil(8e3 * bytes / static_cast<double>(input.parameters)) / 1e3);
  case BudgetKind::TokensPerSecond:
    return llvm::formatv("{0:f1}tok/s",
                         std::floor(10 * budget.bytesPerSecond / bytes) / 10);
  default:
    return llvm::formatv("{0:f2}MB", std::ceil(bytes / 1e4) / 1e2);
  }
}

void BudgetSearch::failByBytes(double least) const {
  throw Error(
      part::subject("--budget") + " " + part::found(budget.text) +
      " is beyond the smallest file that the formats allow, which has " +
      part::needed(inUnit(least)));
}

BudgetPlan BudgetSearch::smallest() const {
  BudgetPlan plan = planOf(fewestBytes());
  if (static_cast<double>(costOf(plan.size)) > mostBytes())
    failByBytes(static_cast<double>(costOf(plan.size)));
  return plan;
}

BudgetPlan BudgetSearch::withinBytes() const {
  const double most = mostBytes();
  BudgetPlan plan = smallest();
  // The rest of the file, and places between matrices.
  const double rest = static_cast<double>(costOf(plan.size)) -
                      sumOf(groups, fewestBytes()).cost;
  double limit = most - rest;
  for (int i = 0; i < kMostAttempts; ++i) {
    const auto choices = allocate(groups, limit);
    if (!choices)
      break;
    BudgetPlan next = planOf(*choices);
    const double over = static_cast<double>(costOf(next.size)) - most;
    if (over <= 0)
      return next;
    limit = sumOf(groups, *choices).cost - over;
  }
  return plan;
}

BudgetPlan BudgetSearch::withinLoss() const {
  const auto choices =
      allocate(exchanged(groups), budget.value - losses.activations);
  if (!choices) {
    const std::vector<size_t> best =
        *allocate(groups, std::numeric_limits<double>::max());
    throw Error(part::subject("--budget") + " " + part::found(budget.text) +
                " is below the least divergence that the formats allow, which "
                "is about " +
                part::needed(llvm::formatv("kl={0:f6}", lossOf(best)).str()));
  }
  return planOf(*choices);
}

/// Replaces the plan by one format of all matrices if that loses less.
void BudgetSearch::addUniform(BudgetPlan &plan) const {
  const double most =
      limitsLoss() ? static_cast<double>(plan.size.fileBytes) : mostBytes();
  std::vector<std::vector<size_t>> all;
  all.reserve(std::size(kBudgetFormats));
  for (size_t i = 0; i < std::size(kBudgetFormats); ++i)
    all.emplace_back(groups.size(), i);
  std::ranges::sort(all, {}, [&](const std::vector<size_t> &choices) {
    return std::pair(lossOf(choices), choices.front());
  });
  for (const std::vector<size_t> &choices : all) {
    // The code is much less than the weights.
    if (sumOf(groups, choices).cost > most)
      continue;
    BudgetPlan uniform = planOf(choices);
    if (static_cast<double>(costOf(uniform.size)) > most)
      continue;
    uniform.isUniform = uniform.loss <= plan.loss;
    BudgetPlan &better = uniform.isUniform ? uniform : plan;
    better.uniform = kBudgetFormats[choices.front()];
    better.uniformLoss = uniform.loss;
    if (uniform.isUniform)
      plan = std::move(uniform);
    return;
  }
}

BudgetPlan BudgetSearch::run() {
  if (limitsLoss() && !losses.withoutGradient.empty())
    throw Error(part::subject("--budget") + " " + part::found(budget.text) +
                " needs gradients, but " + losses.withoutGradient + "; " +
                part::needed("bytes") + ", as in 300MB or 4.6bpw, need none");
  BudgetPlan plan = limitsLoss() ? withinLoss() : withinBytes();
  addUniform(plan);
  return plan;
}

void qwen::requireBudget(const PlanInput &input, const Budget &budget) {
  if (budget.kind != BudgetKind::Divergence)
    BudgetSearch(input, {}, budget).smallest();
}

BudgetPlan qwen::planBudget(const PlanInput &input, const Sensitivities &losses,
                            const Budget &budget) {
  return BudgetSearch(input, losses, budget).run();
}
