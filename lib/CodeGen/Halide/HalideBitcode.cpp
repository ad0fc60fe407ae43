//===- HalideBitcode.cpp - Halide's kernels, as the build made them -------===//

#include "qwen/CodeGen/Halide/HalideBitcode.h"
#include "../EmbeddedBitcode.h"

#include "qwen/Support/Error.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kKernels[] = {
#embed "Kernels.bc"
};
alignas(8) static constexpr unsigned char kShimsX86[] = {
#embed "Shims.x86_64.bc"
};
alignas(8) static constexpr unsigned char kShimsArm[] = {
#embed "Shims.aarch64.bc"
};
// clang-format on

/// Where a kernel lies in kKernels.
static constexpr struct {
  std::string_view name;
  size_t offset, size;
} kIndex[] = {
#include "Kernels.inc"
};

std::string_view qwen::halideBitcode(const KernelInfo &kernel) {
  for (const auto &[name, offset, size] : kIndex)
    if (name == kernel.name)
      return {reinterpret_cast<const char *>(kKernels) + offset, size};
  throw Error("kernel '" + std::string(kernel.name) +
              "' is not one that halide provides");
}

std::string_view qwen::halideShims(Arch arch) {
  return embeddedBitcode(arch, kShimsX86, kShimsArm);
}
