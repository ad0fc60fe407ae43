//===- Workload.h - Costs of all ops in prefill or decode -------*- C++ -*-===//

#ifndef QWEN_OPT_WORKLOAD_H
#define QWEN_OPT_WORKLOAD_H

#include "OpCost.h"

#include <nlohmann/json.hpp>

namespace qwen {

/// The resources of a machine: clock and number of its cores, and the memory
/// bandwidth of all together in bytes a second.
struct MachineSpeed {
  double hertz;
  double cores;
  double bytes;
};

/// The costs of prefill or of decode, for each token.
struct Workload {
  /// Its key in JSON.
  const char *key;
  std::string title;
  SequenceStep step;
  /// The cost of each op of `forward`.
  std::vector<OpCost> ops = {};

  /// Cycles of all ops that have a model.
  double cycles() const;
  /// Upper bound on tokens a second. Each op takes the longer of two times: the
  /// time of its reads (weights, KV cache) and the time of its instructions.
  double ceiling(const MachineSpeed &machine) const;
  /// Prints a table with a row for the ops that differ only in their layer.
  void print(const Manifest &manifest) const;
  /// Cycles, and the cost of each op.
  nlohmann::ordered_json toJson(const Manifest &manifest) const;
};

} // namespace qwen

#endif // QWEN_OPT_WORKLOAD_H
