//===- CppBitcode.cpp - C++ as the build compiled it ----------------------===//

#include "qwen/CodeGen/Cpp/CppBitcode.h"
#include "../EmbeddedBitcode.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kX86[] = {
#embed "CppKernels.x86_64.bc"
};
alignas(8) static constexpr unsigned char kArm[] = {
#embed "CppKernels.aarch64.bc"
};
alignas(8) static constexpr unsigned char kAmxModel[] = {
#embed "AmxModel.x86_64.bc"
};
// clang-format on

std::string_view qwen::cppBitcode(Arch arch) {
  return embeddedBitcode(arch, kX86, kArm);
}

std::string_view qwen::amxModelBitcode() {
  return {reinterpret_cast<const char *>(kAmxModel), sizeof(kAmxModel)};
}
