//===- Limits.h - Limits that the system sets to a compile ------*- C++ -*-===//

#ifndef QWEN_OPT_LIMITS_H
#define QWEN_OPT_LIMITS_H

#include <cstdint>
#include <string>

namespace qwen {

/// Throws Error if a limit (ulimit, a control group) is too low to compile
/// `checkpoint`, beside which `mappedBytes` of other files are mapped:
/// libraries would end the process with a message of their own.
void checkLimits(const std::string &checkpoint, uint64_t mappedBytes);

} // namespace qwen

#endif // QWEN_OPT_LIMITS_H
