//===- OpCost.h - Cost of an op of a compiled model -------------*- C++ -*-===//

#ifndef QWEN_OPT_OPCOST_H
#define QWEN_OPT_OPCOST_H

#include "artifact/Manifest.h"

#include "qwen/CodeGen/Backend/CallCode.h"
#include "qwen/CostModel/CpuModel.h"
#include "qwen/CostModel/ObjectCode.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

/// Cycles of the kernels of one target's code on a CPU: of products in a file,
/// of other kernels as they are generated for calls of one size.
class KernelCycles {
public:
  /// `file` is a compiled model, `target` one of its targets, and `cpu` one of
  /// LLVM's names. Throws Error where one of them is not.
  KernelCycles(const std::string &file, const TargetInfo &target,
               const std::string &cpu);

  /// Cycles of a multiplication of a kernel (modelKernel); none where it has no
  /// model.
  std::optional<double> ofMac(const KernelInfo &kernel);
  /// Cycles of a call of a kernel (modelCall); likewise.
  std::optional<double> ofCall(const KernelInfo &kernel, CallSize size);

  /// Kernels that were asked for and have no model, and why.
  const std::map<std::string, std::string> &failures() const { return failed; }

private:
  using Key = std::pair<std::string_view, CallSize>;

  template <typename Compute>
  std::optional<double> cached(const KernelInfo &kernel, CallSize size,
                               Compute compute);

  const ObjectCode object;
  const Target target;
  const CpuModel model;
  std::map<Key, std::optional<double>> known;
  std::map<std::string, std::string> failed;
};

/// The cost of one op for a token.
struct OpCost {
  double bytes = 0;
  /// The part of `bytes` that comes from memory: weights and the cache.
  double memoryBytes = 0;
  double macs = 0;
  /// None where one of the op's kernels has no model, or the driver computes
  /// the op without kernels.
  std::optional<double> cycles;
  /// Names of the kernels that do it.
  std::vector<std::string> kernels;
};

/// The cost of an op of `forward` in a step, for each of its tokens, from its
/// work. `target` is one of the manifest's. Products and attention take the
/// cycles per multiplication of their kernels' loops; other kernels take the
/// cycles of their calls. The cost excludes the driver, which calls the kernels
/// and waits, and the work that only hidden values need.
OpCost costOf(const Manifest &manifest, const TargetInfo &target, size_t op,
              const SequenceStep &step, KernelCycles &cycles);

} // namespace qwen

#endif // QWEN_OPT_OPCOST_H
