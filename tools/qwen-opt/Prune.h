//===- Prune.h - The command line of pruning --------------------*- C++ -*-===//

#ifndef QWEN_OPT_PRUNE_H
#define QWEN_OPT_PRUNE_H

#include "Calibrate.h"

namespace qwen {

/// Adds --prune.
void addPruning(const Command &command, CalibrateFlags &flags);

/// Does nothing without --prune. Sets the layers of `options` that it names, or
/// the hook that chooses them, with the text of the calibration or qwen-opt's
/// own. The hook prints what it chose and what that costs. Throws UsageError
/// for another value.
void applyPruning(const Command &command, const CalibrateFlags &flags,
                  const std::string &checkpoint, CompileOptions &options,
                  CompileHooks &hooks);

} // namespace qwen

#endif // QWEN_OPT_PRUNE_H
