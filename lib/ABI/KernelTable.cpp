//===- KernelTable.cpp - The kernel table as data -------------------------===//

#include "qwen/ABI/KernelTable.h"

#include <algorithm>
#include <array>

using namespace qwen;

namespace {
/// A string literal as an argument of a template.
template <size_t Size> struct Literal {
  consteval Literal(const char (&from)[Size]) {
    std::ranges::copy(from, text.begin());
  }
  std::array<char, Size> text = {};
};
} // namespace

/// "<stem>_<name of the instruction set>", which ends with a zero.
template <Literal Stem, KernelIsa Isa>
static constexpr auto kName = [] {
  constexpr std::string_view isa = isaInfo(Isa).name;
  constexpr size_t size = Stem.text.size();
  std::array<char, size + isa.size() + 1> name = {};
  std::ranges::copy(Stem.text, name.begin());
  name[size - 1] = '_';
  std::ranges::copy(isa, name.begin() + size);
  return name;
}();

static constexpr KernelInfo kKernels[] = {
#define QWEN_KERNEL(Stem, Op, Format, M, Isa)                                  \
  {kName<#Stem, KernelIsa::Isa>.data(), KernelOp::Op, KernelFormat::Format, M, \
   KernelIsa::Isa},
#include "qwen/ABI/Kernels.def"
};

static_assert(std::ranges::all_of(kKernels,
                                  [](const KernelInfo &kernel) {
                                    return (infoOf(kernel.op).reads &
                                            setOf(kernel.format)) != 0;
                                  }),
              "a kernel has a format that its kind does not read");

std::optional<WeightFormat> qwen::weightFormat(KernelFormat format) {
  const int number = static_cast<int>(format) - kFirstWeightFormat;
  if (number < 0)
    return std::nullopt;
  return static_cast<WeightFormat>(number);
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
