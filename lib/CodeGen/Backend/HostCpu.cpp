//===- HostCpu.cpp - The CPU of this machine ------------------------------===//

#include "qwen/CodeGen/Backend/HostCpu.h"

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/Support/ControlGroups.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/TargetParser/Host.h"
#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>
#include <vector>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

using namespace qwen;
using llvm::StringRef;

namespace {
struct Core {
  /// LLVM's name, or "generic".
  std::string name;
  /// CpuFeatures.def counts.
  size_t featureCount = 0;
  /// Linux's measure of its speed, at most 1024. Machines of one kind of cores
  /// lack it.
  unsigned capacity = 0;

  auto rank() const { return std::tie(featureCount, capacity, name); }
};
} // namespace

static Core makeCore(uint64_t midr, unsigned capacity) {
  const StringRef name = llvm::sys::detail::getHostCPUNameForARM(midr, {midr});
  if (!llvm::is_contained(targetCpuNames(Arch::AArch64), name))
    return {"generic", 0, capacity};
  return {name.str(), resolveTarget(name).features.names().size(), capacity};
}

/// The number in a file's first line.
template <typename Number>
static std::optional<Number> readNumber(const std::string &path) {
  const std::optional<std::string> line = firstLine(path);
  Number number = 0;
  // A radix of 0 reads 0x, too.
  if (!line || StringRef(*line).trim().getAsInteger(0, number))
    return std::nullopt;
  return number;
}

/// The register of the core that runs this, if Linux lets programs read it.
static std::optional<uint64_t> ownRegister() {
#ifdef __aarch64__
  if (getauxval(AT_HWCAP) & HWCAP_CPUID) {
    uint64_t midr;
    __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
    return midr;
  }
#endif
  return std::nullopt;
}

std::string qwen::leastArmCore(const std::string &folder) {
  std::vector<Core> cores;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string core = entry.path().string();
    if (const auto midr =
            readNumber<uint64_t>(core + "/regs/identification/midr_el1"))
      cores.push_back(makeCore(
          *midr, readNumber<unsigned>(core + "/cpu_capacity").value_or(0)));
  }
  if (const auto midr = ownRegister(); cores.empty() && midr)
    cores.push_back(makeCore(*midr, 0));
  const auto least = std::ranges::min_element(cores, {}, &Core::rank);
  return least == cores.end() ? "generic" : least->name;
}

std::string qwen::hostCpu() {
  if (hostArch() == Arch::AArch64)
    return leastArmCore("/sys/devices/system/cpu");
  return llvm::sys::getHostCPUName().str();
}
