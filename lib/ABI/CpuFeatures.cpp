//===- CpuFeatures.cpp - Typed set of CPU features ------------------------===//

#include "qwen/ABI/CpuFeatures.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

using namespace qwen;

namespace {
struct FeatureInfo {
  CpuFeature feature;
  Arch arch;
  std::string_view name;
};
} // namespace

static constexpr FeatureInfo kFeatures[] = {
#define QWEN_CPU_FEATURE(Enumerator, Architecture, Spelling)                   \
  {CpuFeature::Enumerator, Arch::Architecture, Spelling},
#include "qwen/ABI/CpuFeatures.def"
};

std::string_view qwen::archName(Arch arch) {
  return arch == Arch::X86_64 ? "x86-64" : "aarch64";
}

std::vector<std::string_view> CpuFeatureSet::names() const {
  std::vector<std::string_view> result;
  for (const FeatureInfo &info : kFeatures)
    if (contains(info.feature))
      result.push_back(info.name);
  return result;
}

std::string_view qwen::featureName(CpuFeature feature) {
  return kFeatures[static_cast<unsigned>(feature)].name;
}

Arch qwen::featureArch(CpuFeature feature) {
  return kFeatures[static_cast<unsigned>(feature)].arch;
}

std::optional<CpuFeature> qwen::parseFeature(std::string_view name) {
  for (const FeatureInfo &info : kFeatures)
    if (info.name == name)
      return info.feature;
  return std::nullopt;
}

std::string qwen::toString(CpuFeatureSet features) {
  std::string result;
  for (std::string_view name : features.names()) {
    if (!result.empty())
      result += ", ";
    result += name;
  }
  return result;
}

Arch qwen::hostArch() {
#if defined(__x86_64__)
  return Arch::X86_64;
#elif defined(__aarch64__)
  return Arch::AArch64;
#else
#error "this architecture is not supported"
#endif
}

#if defined(__x86_64__)
/// The register state that the operating system saves (XCR0).
static uint64_t enabledState() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

/// Requests AMX's tile registers and returns whether this process may use them.
/// Linux requires the request, because they add 8 KiB to the saved state of a
/// thread. Older Linux kernels reject it and never enable the state.
static bool tilesGranted() {
  constexpr unsigned long kTileData = 18;
  static const bool granted =
      syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) == 0;
  return granted;
}

CpuFeatureSet qwen::hostFeatures() {
  CpuFeatureSet features;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
    return features;
  constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xE6, kTileState = 0x60000;
  const uint64_t state = enabledState();
  if ((state & kAvxState) != kAvxState)
    return features;
  if (ecx & bit_FMA)
    features.insert(CpuFeature::FMA);
  if (ecx & bit_F16C)
    features.insert(CpuFeature::F16C);
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    return features;
  if (ebx & bit_AVX2)
    features.insert(CpuFeature::AVX2);
  unsigned eax1, ebx1, ecx1, edx1;
  if (__get_cpuid_count(7, 1, &eax1, &ebx1, &ecx1, &edx1) &&
      (eax1 & bit_AVXVNNI))
    features.insert(CpuFeature::AVXVNNI);
  if ((state & kAvx512State) != kAvx512State)
    return features;
  if (ebx & bit_AVX512F)
    features.insert(CpuFeature::AVX512F);
  if (ebx & bit_AVX512CD)
    features.insert(CpuFeature::AVX512CD);
  if (ebx & bit_AVX512BW)
    features.insert(CpuFeature::AVX512BW);
  if (ebx & bit_AVX512DQ)
    features.insert(CpuFeature::AVX512DQ);
  if (ebx & bit_AVX512VL)
    features.insert(CpuFeature::AVX512VL);
  if (ecx & bit_AVX512VNNI)
    features.insert(CpuFeature::AVX512VNNI);
  if ((edx & bit_AMXTILE) && (state & kTileState) == kTileState &&
      tilesGranted()) {
    features.insert(CpuFeature::AMXTile);
    if (edx & bit_AMXINT8)
      features.insert(CpuFeature::AMXInt8);
  }
  return features;
}
#elif defined(__aarch64__)
CpuFeatureSet qwen::hostFeatures() {
  CpuFeatureSet features;
  const unsigned long hwcap = getauxval(AT_HWCAP);
  const unsigned long hwcap2 = getauxval(AT_HWCAP2);
  if (hwcap & HWCAP_ASIMD)
    features.insert(CpuFeature::NEON);
  if (hwcap & HWCAP_ASIMDDP)
    features.insert(CpuFeature::DotProd);
  if (hwcap2 & HWCAP2_I8MM)
    features.insert(CpuFeature::I8MM);
  if (hwcap & HWCAP_SVE)
    features.insert(CpuFeature::SVE);
  return features;
}
#endif
