//===- Cases.h - The cases of one kernel ------------------------*- C++ -*-===//

#ifndef QWEN_LIB_VERIFY_CASES_H
#define QWEN_LIB_VERIFY_CASES_H

#include "qwen/ABI/KernelTable.h"
#include "qwen/Support/Error.h"
#include "qwen/Verify/Guarded.h"
#include "qwen/Verify/RandomValues.h"
#include "qwen/Verify/VerifySizes.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

namespace qwen::verify {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kMax = std::numeric_limits<float>::max();

/// A kernel and its reference.
template <KernelOp Op> struct Compared {
  const KernelInfo &info;
  KernelFn<Op> *kernel;
  KernelFn<Op> *reference;
};

/// Names and counts cases, and compares their results.
class Cases {
public:
  Cases(const VerifySizes &sizes,
        const std::function<void(const std::string &)> &started)
      : sizes(sizes), started(started) {}

  const VerifySizes &sizes;

  /// Starts the case that `parts` describe, printed one after another.
  template <typename... Parts> void start(const Parts &...parts) {
    ++cases;
    std::ostringstream text;
    (text << ... << parts);
    description = text.str();
    started(description);
  }
  int64_t count() const { return cases; }

  template <typename T>
  void expectSame(const Guarded<T> &found, const Guarded<T> &needed,
                  const char *name) const {
    if (!found.intact())
      fail("the kernel writes in front of " + std::string(name));
    for (int64_t i = 0; i < needed.length(); ++i)
      if (!same(found[i], needed[i]))
        fail(std::string(name) + "[" + std::to_string(i) + "] is " +
             text(found[i]) + " when the reference has " + text(needed[i]));
  }

  /// Compares what call(function, memory) writes to a copy of `result` for the
  /// kernel and for the reference.
  template <KernelOp Op, typename T, typename Call>
  void compare(const Compared<Op> &of, const Guarded<T> &result,
               const char *name, Call call) const {
    Guarded<T> found(result), needed(result);
    call(of.reference, needed.data());
    call(of.kernel, found.data());
    expectSame(found, needed, name);
  }

  /// What kernels with a flag return.
  void expectFlag(int32_t found, int32_t needed) const {
    if (found != needed)
      fail("the flag is " + std::to_string(found) + " when the reference has " +
           std::to_string(needed));
  }

  /// Throws Error about the case.
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(description + ": " + what);
  }

private:
  static bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  }
  template <typename T> static bool same(T a, T b) { return a == b; }

  template <typename T> static std::string text(T value) {
    std::ostringstream stream;
    stream << std::hexfloat << +value;
    return stream.str();
  }

  const std::function<void(const std::string &)> &started;
  std::string description;
  int64_t cases = 0;
};

// A function for each kind: compares a kernel with its reference over all
// cases.
#define QWEN_KERNEL_OP(Op, ...)                                                \
  void checkKernel(Cases &cases, const Compared<KernelOp::Op> &of);
#include "qwen/ABI/KernelOps.def"

} // namespace qwen::verify

#endif // QWEN_LIB_VERIFY_CASES_H
