//===- KernelVerifier.h - Compares kernels with the reference ---*- C++ -*-===//
//
// Runs a generated kernel and its reference (Numerics/Kernels.h) on the same
// random and extreme operands. Results must be equal bit for bit, except where
// the ABI leaves them unspecified.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_VERIFY_KERNELVERIFIER_H
#define QWEN_VERIFY_KERNELVERIFIER_H

#include "qwen/ABI/KernelTable.h"
#include "qwen/Verify/VerifySizes.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace qwen {

/// Verifies kernels one after another.
class KernelVerifier {
public:
  /// Calls `started` with the name of each case before the kernel runs, for
  /// messages about signals.
  explicit KernelVerifier(
      VerifySizes sizes,
      std::function<void(const std::string &)> started = [](const auto &) {})
      : sizes(std::move(sizes)), started(std::move(started)) {}

  /// Verifies `function`, the code of `kernel`, which this machine must
  /// support, and returns the number of cases. Throws Error at the first
  /// difference, with case, element, found and expected value, and also if the
  /// kernel writes before the start of an operand. An access past the end of an
  /// operand raises SIGSEGV.
  int64_t verify(const KernelInfo &kernel, void *function);

private:
  VerifySizes sizes;
  std::function<void(const std::string &)> started;
};

} // namespace qwen

#endif // QWEN_VERIFY_KERNELVERIFIER_H
