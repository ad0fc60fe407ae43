//===- OutputVersion.h - Version of files with a ModelOutput ----*- C++ -*-===//

#ifndef QWEN_ABI_OUTPUTVERSION_H
#define QWEN_ABI_OUTPUTVERSION_H

#include <cstdint>

namespace qwen {

/// In place of kFormatVersion (Artifact.h), the version of a file whose
/// manifest has more of a ModelOutput than its defaults: readers of version 1
/// would pass over it. Readers accept both versions only.
inline constexpr uint32_t kOutputFormatVersion = 2;

} // namespace qwen

#endif // QWEN_ABI_OUTPUTVERSION_H
