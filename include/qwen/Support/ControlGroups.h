//===- ControlGroups.h - Limits that the system sets -----------*- C++ -*-===//
//
// Limits of this process from Linux control groups (containers, systemd units):
// version 2, or version 1 with its usual mounts.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_CONTROLGROUPS_H
#define QWEN_SUPPORT_CONTROLGROUPS_H

#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

// Tests set `root`, a prefix of "/sys" and "/proc".

/// The lowest processor quota, in CPUs, of this process's group and its
/// parents; infinity if there is none.
double controlGroupCpus(const std::string &root = "");

/// The lowest memory limit, in bytes, of this process's group and its parents;
/// nullopt if there is none.
std::optional<uint64_t> controlGroupMemory(const std::string &root = "");

/// Bytes of memory of the machine; nullopt if unknown.
std::optional<uint64_t> machineMemory(const std::string &root = "");

/// Bytes of memory that programs can still get without swapping, at most
/// controlGroupMemory; nullopt if unknown.
std::optional<uint64_t> freeMemory(const std::string &root = "");

/// Whether a file of `bytes` is larger than freeMemory, so that the system
/// cannot keep all of it in memory; false if that is unknown.
bool exceedsFreeMemory(uint64_t bytes);

/// The first line of a file of /sys or /proc; nullopt if it cannot be read.
std::optional<std::string> firstLine(const std::string &path);

} // namespace qwen

#endif // QWEN_SUPPORT_CONTROLGROUPS_H
