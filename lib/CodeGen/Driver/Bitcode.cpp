//===- Bitcode.cpp - The driver's bitcode, as the build made it -----------===//

#include "qwen/CodeGen/Driver/Bitcode.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kAttentionX86[] = {
#embed "Attention.x86_64.bc"
};
alignas(8) static constexpr unsigned char kElementwiseX86[] = {
#embed "Elementwise.x86_64.bc"
};
alignas(8) static constexpr unsigned char kProductsX86[] = {
#embed "Products.x86_64.bc"
};
alignas(8) static constexpr unsigned char kAttentionArm[] = {
#embed "Attention.aarch64.bc"
};
alignas(8) static constexpr unsigned char kElementwiseArm[] = {
#embed "Elementwise.aarch64.bc"
};
alignas(8) static constexpr unsigned char kProductsArm[] = {
#embed "Products.aarch64.bc"
};
// clang-format on

template <size_t N>
static std::string_view text(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char *>(bytes), N};
}

std::array<std::string_view, 3> qwen::driverBitcode(Arch arch) {
  if (arch == Arch::X86_64)
    return {text(kAttentionX86), text(kElementwiseX86), text(kProductsX86)};
  return {text(kAttentionArm), text(kElementwiseArm), text(kProductsArm)};
}
