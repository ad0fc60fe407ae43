//===- DriverBitcode.h - The driver as bitcode ------------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_DRIVER_DRIVERBITCODE_H
#define QWEN_CODEGEN_DRIVER_DRIVERBITCODE_H

#include "qwen/ABI/CpuFeatures.h"

#include <string_view>

namespace qwen {

/// LLVM bitcode of the driver's sources (Driver.h) for `arch`, not optimized.
/// It uses the architecture's least features.
std::string_view driverBitcode(Arch arch);

} // namespace qwen

#endif // QWEN_CODEGEN_DRIVER_DRIVERBITCODE_H
