//===- Version.h - The version of this project ------------------*- C++ -*-===//
//
// CMakeLists.txt defines it. File formats have their own versions
// (ArtifactFormat.h).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_VERSION_H
#define QWEN_SUPPORT_VERSION_H

namespace qwen {

/// The version of the compiler and the runtime, "0.1".
const char *projectVersion();

} // namespace qwen

#endif // QWEN_SUPPORT_VERSION_H
