//===- CpuFeatures.h - Typed set of CPU features ----------------*- C++ -*-===//
//
// The features that a kernel needs or a machine has, as a set of enumerators.
// Strings appear only where text enters or leaves the program.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_CPUFEATURES_H
#define QWEN_ABI_CPUFEATURES_H

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The supported architectures. Artifacts store the values.
enum class Arch : uint32_t { X86_64 = 1, AArch64 = 2 };

/// Returns "x86-64" or "aarch64".
std::string_view archName(Arch arch);

/// One optional feature of an architecture.
enum class CpuFeature : uint8_t {
#define QWEN_CPU_FEATURE(Enumerator, Arch, Spelling) Enumerator,
#include "qwen/ABI/CpuFeatures.def"
};

/// A set of CPU features.
class CpuFeatureSet {
public:
  constexpr CpuFeatureSet() = default;
  constexpr CpuFeatureSet(std::initializer_list<CpuFeature> features) {
    for (CpuFeature feature : features)
      insert(feature);
  }

  constexpr void insert(CpuFeature feature) {
    bits |= uint64_t{1} << static_cast<unsigned>(feature);
  }
  constexpr bool contains(CpuFeature feature) const {
    return bits >> static_cast<unsigned>(feature) & 1;
  }
  /// Whether every feature of `other` is in this set.
  constexpr bool containsAll(CpuFeatureSet other) const {
    return (other.bits & ~bits) == 0;
  }
  constexpr bool empty() const { return bits == 0; }
  constexpr CpuFeatureSet operator|(CpuFeatureSet other) const {
    return fromBits(bits | other.bits);
  }
  /// The features of this set that `other` lacks.
  constexpr CpuFeatureSet operator-(CpuFeatureSet other) const {
    return fromBits(bits & ~other.bits);
  }
  constexpr bool operator==(const CpuFeatureSet &) const = default;

  /// The spellings of the features, in the order of CpuFeatures.def.
  std::vector<std::string_view> names() const;

private:
  static constexpr CpuFeatureSet fromBits(uint64_t bits) {
    CpuFeatureSet set;
    set.bits = bits;
    return set;
  }

  uint64_t bits = 0;
};

/// The spelling of one feature, for example "avx512vnni".
std::string_view featureName(CpuFeature feature);

/// The architecture that a feature belongs to.
Arch featureArch(CpuFeature feature);

/// Parses one spelling of CpuFeatures.def.
std::optional<CpuFeature> parseFeature(std::string_view name);

/// Joins the spellings with ", " for messages.
std::string toString(CpuFeatureSet features);

/// The features that every target of `arch` must have: AVX2, FMA and F16C on
/// x86-64; NEON on AArch64 (docs/numerics.md, "Domain and environment").
constexpr CpuFeatureSet leastFeatures(Arch arch) {
  if (arch == Arch::X86_64)
    return {CpuFeature::AVX2, CpuFeature::FMA, CpuFeature::F16C};
  return {CpuFeature::NEON};
}

/// The architecture that this program was built for.
Arch hostArch();

/// The features of this machine that the processor has and the operating system
/// grants (XCR0 on x86-64, HWCAP on AArch64). Linux grants AMX's tile registers
/// on request; the first call requests them for all threads of this process.
CpuFeatureSet hostFeatures();

} // namespace qwen

#endif // QWEN_ABI_CPUFEATURES_H
