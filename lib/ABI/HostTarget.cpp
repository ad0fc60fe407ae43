//===- HostTarget.cpp - This machine as a target --------------------------===//

#include "qwen/ABI/HostTarget.h"

#include "qwen/ABI/CpuFeatures.h"

using namespace qwen;

std::string qwen::hostTarget() {
  const CpuFeatureSet least = leastFeatures(hostArch());
  std::string target = hostArch() == Arch::X86_64 ? "x86-64-v3" : "armv8.2-a";
  for (std::string_view name : (hostFeatures() - least).names())
    target += "+" + std::string(name);
  return target;
}
