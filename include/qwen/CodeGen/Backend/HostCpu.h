//===- HostCpu.h - The CPU of this machine ----------------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_BACKEND_HOSTCPU_H
#define QWEN_CODEGEN_BACKEND_HOSTCPU_H

#include <string>

namespace qwen {

/// LLVM's name of this machine's CPU, or "generic".
std::string hostCpu();

/// LLVM's name of the least core of an AArch64 machine, or "generic".
/// A machine may have two or three kinds of cores. The least is the one with
/// the fewest features, and of equals the slowest. Code that is scheduled for
/// it serves the others, which order instructions themselves.
/// `folder` is Linux's /sys/devices/system/cpu, which has the registers MIDR
/// (Main ID Register) and the capacities of all cores. If it has no register,
/// the one of the calling core counts.
std::string leastArmCore(const std::string &folder);

} // namespace qwen

#endif // QWEN_CODEGEN_BACKEND_HOSTCPU_H
