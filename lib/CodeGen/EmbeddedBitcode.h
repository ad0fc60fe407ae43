//===- EmbeddedBitcode.h - Bitcode that a source embeds ---------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_EMBEDDEDBITCODE_H
#define QWEN_LIB_CODEGEN_EMBEDDEDBITCODE_H

#include "qwen/ABI/CpuFeatures.h"

#include <string_view>

namespace qwen {

/// The embedded bitcode for `arch`.
template <size_t X86Bytes, size_t ArmBytes>
std::string_view embeddedBitcode(Arch arch,
                                 const unsigned char (&x86)[X86Bytes],
                                 const unsigned char (&arm)[ArmBytes]) {
  const bool isX86 = arch == Arch::X86_64;
  return {reinterpret_cast<const char *>(isX86 ? x86 : arm),
          isX86 ? X86Bytes : ArmBytes};
}

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_EMBEDDEDBITCODE_H
