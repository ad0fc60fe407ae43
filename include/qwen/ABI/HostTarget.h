//===- HostTarget.h - This machine as a target ------------------*- C++ -*-===//

#ifndef QWEN_ABI_HOSTTARGET_H
#define QWEN_ABI_HOSTTARGET_H

#include <string>

namespace qwen {

/// The features of this machine as a value of `--target`, such as
/// "armv8.2-a+dotprod".
std::string hostTarget();

} // namespace qwen

#endif // QWEN_ABI_HOSTTARGET_H
