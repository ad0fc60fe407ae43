//===- KernelTable.cpp - The kernel table as data -------------------------===//

#include "qwen/ABI/KernelTable.h"

using namespace qwen;

static constexpr KernelInfo kKernels[] = {
#define QWEN_KERNEL(Name, Op, Format, M, Isa, Provider)                        \
  {#Name, KernelOp::Op,   KernelFormat::Format,                                \
   M,     KernelIsa::Isa, KernelProvider::Provider},
#include "qwen/ABI/Kernels.def"
};

Arch qwen::isaArch(KernelIsa isa) {
  switch (isa) {
  case KernelIsa::AVX2:
  case KernelIsa::AVXVNNI:
  case KernelIsa::AVX512:
  case KernelIsa::AVX512VNNI:
  case KernelIsa::AMXInt8:
    return Arch::X86_64;
  case KernelIsa::NEON:
  case KernelIsa::NEONDotProd:
  case KernelIsa::SVE:
  case KernelIsa::NEONI8MM:
  case KernelIsa::SVEI8MM:
    return Arch::AArch64;
  }
  __builtin_unreachable();
}

CpuFeatureSet qwen::isaFeatures(KernelIsa isa) {
  constexpr CpuFeatureSet avx512 = {CpuFeature::AVX512F, CpuFeature::AVX512CD,
                                    CpuFeature::AVX512BW, CpuFeature::AVX512DQ,
                                    CpuFeature::AVX512VL};
  const CpuFeatureSet least = leastFeatures(isaArch(isa));
  switch (isa) {
  case KernelIsa::AVX2:
  case KernelIsa::NEON:
    return least;
  case KernelIsa::AVXVNNI:
    return least | CpuFeatureSet{CpuFeature::AVXVNNI};
  case KernelIsa::AVX512:
    return least | avx512;
  case KernelIsa::AVX512VNNI:
    return least | avx512 | CpuFeatureSet{CpuFeature::AVX512VNNI};
  case KernelIsa::AMXInt8:
    // Every CPU with AMX has VNNI, whose rows serve the tokens that tiles
    // leave.
    return isaFeatures(KernelIsa::AVX512VNNI) |
           CpuFeatureSet{CpuFeature::AMXTile, CpuFeature::AMXInt8};
  case KernelIsa::NEONDotProd:
    return least | CpuFeatureSet{CpuFeature::DotProd};
  case KernelIsa::SVE:
    return least | CpuFeatureSet{CpuFeature::SVE};
  case KernelIsa::NEONI8MM:
    return least | CpuFeatureSet{CpuFeature::DotProd, CpuFeature::I8MM};
  case KernelIsa::SVEI8MM:
    return least | CpuFeatureSet{CpuFeature::SVE, CpuFeature::I8MM};
  }
  __builtin_unreachable();
}

int64_t qwen::vectorLanes(KernelIsa isa) {
  switch (isa) {
  case KernelIsa::AVX512:
  case KernelIsa::AVX512VNNI:
  case KernelIsa::AMXInt8:
    return 16;
  case KernelIsa::AVX2:
  case KernelIsa::AVXVNNI:
    return 8;
  case KernelIsa::NEON:
  case KernelIsa::NEONDotProd:
  case KernelIsa::SVE:
  case KernelIsa::NEONI8MM:
  case KernelIsa::SVEI8MM:
    return 4;
  }
  __builtin_unreachable();
}

KernelFormat qwen::kernelFormat(WeightFormat format) {
  switch (format) {
  case WeightFormat::F32:
    return KernelFormat::F32;
  case WeightFormat::BF16:
    return KernelFormat::BF16;
  case WeightFormat::Q8_0:
    return KernelFormat::Q8_0;
  case WeightFormat::Q4_0:
    return KernelFormat::Q4_0;
  case WeightFormat::Q4_G128:
    return KernelFormat::Q4_G128;
  }
  __builtin_unreachable();
}

std::optional<WeightFormat> qwen::weightFormat(KernelFormat format) {
  for (WeightFormat weights : kWeightFormats)
    if (kernelFormat(weights) == format)
      return weights;
  return std::nullopt;
}

std::span<const KernelInfo> qwen::kernelTable() { return kKernels; }

const KernelInfo *qwen::findKernel(std::string_view name) {
  for (const KernelInfo &kernel : kKernels)
    if (kernel.name == name)
      return &kernel;
  return nullptr;
}

const KernelInfo *qwen::selectKernel(KernelOp op, KernelFormat format,
                                     CpuFeatureSet features, bool gemm) {
  const KernelInfo *best = nullptr;
  for (const KernelInfo &kernel : kKernels)
    if (kernel.op == op && kernel.format == format && (kernel.m > 1) == gemm &&
        features.containsAll(kernel.features()))
      best = &kernel;
  return best;
}
