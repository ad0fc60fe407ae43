//===- Bitcode.cpp - The driver's bitcode, as the build made it -----------===//

#include "qwen/CodeGen/Driver/Bitcode.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kX86[] = {
#embed "Driver.x86_64.bc"
};
alignas(8) static constexpr unsigned char kArm[] = {
#embed "Driver.aarch64.bc"
};
// clang-format on

template <size_t N>
static std::string_view text(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char *>(bytes), N};
}

std::string_view qwen::driverBitcode(Arch arch) {
  return arch == Arch::X86_64 ? text(kX86) : text(kArm);
}
