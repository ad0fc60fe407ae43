//===- Budget.h - The command line of a budget ------------------*- C++ -*-===//

#ifndef QWEN_OPT_BUDGET_H
#define QWEN_OPT_BUDGET_H

#include "Calibrate.h"
#include "CommandLine.h"

#include "calibration/BudgetPlan.h"
#include "qwen/Compiler/Compiler.h"

#include <optional>
#include <string>

namespace qwen {

/// The flags of a budget.
struct BudgetFlags {
  std::optional<Budget> budget;
  /// Memory bandwidth in 10^9 bytes a second; without it, it is measured.
  std::optional<double> gigabytes;
};

/// Adds the flags, which exclude others that give formats.
void addBudget(const Command &command, BudgetFlags &flags);

/// Throws UsageError if another option contradicts the budget.
void checkBudget(const Command &command, const BudgetFlags &flags,
                 const CompileOptions &options);

/// The text of a plan within the budget, by the text of `calibrate`. Tells on
/// standard error what it chose. Throws Error.
std::string planByBudget(const BudgetFlags &flags,
                         const CalibrateFlags &calibrate,
                         const std::string &checkpoint,
                         const CompileOptions &options,
                         const CompileHooks &hooks);

} // namespace qwen

#endif // QWEN_OPT_BUDGET_H
