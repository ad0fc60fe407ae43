//===- Version.cpp - The version of this project --------------------------===//

#include "qwen/Support/Version.h"

const char *qwen::projectVersion() { return QWEN_VERSION; }
