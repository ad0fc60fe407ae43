//===- DriverBitcode.cpp - The driver's bitcode, as the build made it -----===//

#include "qwen/CodeGen/Driver/DriverBitcode.h"
#include "../EmbeddedBitcode.h"

using namespace qwen;

// clang-format off
alignas(8) static constexpr unsigned char kX86[] = {
#embed "Driver.x86_64.bc"
};
alignas(8) static constexpr unsigned char kArm[] = {
#embed "Driver.aarch64.bc"
};
// clang-format on

std::string_view qwen::driverBitcode(Arch arch) {
  return embeddedBitcode(arch, kX86, kArm);
}
