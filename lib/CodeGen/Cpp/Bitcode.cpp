//===- Bitcode.cpp - Kernels in C++, as the build made them ---------------===//

#include "qwen/CodeGen/Cpp/Bitcode.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kX86[] = {
#embed "Kernels.x86_64.bc"
};
alignas(8) static constexpr unsigned char kArm[] = {
#embed "Kernels.aarch64.bc"
};
// clang-format on

template <size_t N>
static std::string_view text(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char *>(bytes), N};
}

std::string_view qwen::cppBitcode(Arch arch) {
  return arch == Arch::X86_64 ? text(kX86) : text(kArm);
}
