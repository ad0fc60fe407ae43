//===- Isas.h - The instruction sets as data --------------------*- C++ -*-===//
//
// Isas.def expanded. Its columns say what the fields are.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_ISAS_H
#define QWEN_ABI_ISAS_H

#include "qwen/ABI/ActivationLayouts.h"
#include "qwen/ABI/CpuFeatures.h"

#include <array>

namespace qwen {

/// What multiplies bytes with bytes and adds the products up.
enum class DotKind : uint8_t {
#define QWEN_DOT(Kind, ...) Kind,
#include "qwen/ABI/Isas.def"
};

/// A line of QWEN_DOT.
struct DotInfo {
  DotKind kind;
  int64_t tokens;
  bool isUnsigned;
  ActivationLayout layout;
};

constexpr DotInfo dotInfo(DotKind kind) {
  constexpr DotInfo dots[] = {
#define QWEN_DOT(Kind, Tokens, IsUnsigned, Layout)                             \
  {DotKind::Kind, Tokens, IsUnsigned, ActivationLayout::Layout},
#include "qwen/ABI/Isas.def"
  };
  return dots[static_cast<unsigned>(kind)];
}

/// Instructions of a kernel's inner loop.
enum class KernelIsa : uint8_t {
#define QWEN_ISA(Isa, ...) Isa,
#include "qwen/ABI/Isas.def"
};

/// A line of QWEN_ISA.
struct IsaInfo {
  std::string_view name;
  Arch arch;
  int64_t lanes;
  bool isScalable;
  int64_t registers;
  DotInfo dot;
  /// The least ones of the architecture included.
  CpuFeatureSet features;
};

/// In the order of KernelIsa.
inline constexpr auto kIsas = [] {
  using enum CpuFeature;
  return std::to_array<IsaInfo>({
#define QWEN_ISA(Isa, Name, Architecture, Lanes, IsScalable, Registers, Dot,   \
                 ...)                                                          \
  {#Name,                                                                      \
   Arch::Architecture,                                                         \
   Lanes,                                                                      \
   IsScalable,                                                                 \
   Registers,                                                                  \
   dotInfo(DotKind::Dot),                                                      \
   leastFeatures(Arch::Architecture) | CpuFeatureSet{__VA_ARGS__}},
#include "qwen/ABI/Isas.def"
  });
}();

constexpr const IsaInfo &isaInfo(KernelIsa isa) {
  return kIsas[static_cast<unsigned>(isa)];
}

} // namespace qwen

#endif // QWEN_ABI_ISAS_H
