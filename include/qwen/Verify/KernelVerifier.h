//===- KernelVerifier.h - Kernels against their reference -------*- C++ -*-===//
//
// Runs a generated kernel and the plain C++ function that defines it
// (Numerics/Kernels.h) on the same random and extreme operands. Results must
// be the same bit for bit, but for what the ABI leaves open.
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
  /// `started` is told of each case before the kernel runs it, for messages
  /// about signals.
  explicit KernelVerifier(
      VerifySizes sizes,
      std::function<void(const std::string &)> started = [](const auto &) {})
      : sizes(std::move(sizes)), started(std::move(started)) {}

  /// Runs the function of `row` at `kernel`, which must be code that this
  /// machine can run, and returns the number of cases. Throws Error with the
  /// case, the element, what was found and what was needed at the first
  /// difference, and where the kernel writes in front of an output. A kernel
  /// that touches what lies behind an operand gets SIGSEGV.
  int64_t verify(const KernelInfo &row, void *kernel);

private:
  VerifySizes sizes;
  std::function<void(const std::string &)> started;
};

} // namespace qwen

#endif // QWEN_VERIFY_KERNELVERIFIER_H
