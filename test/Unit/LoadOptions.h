//===- LoadOptions.h - Options of qwen_load ---------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_LOADOPTIONS_H
#define QWEN_TEST_UNIT_LOADOPTIONS_H

#include "qwenrt.h"

namespace qwen::test {

/// The members of qwen_options.
struct LoadOptions {
#define QWEN_ENGINE_OPTION(Part, Type, Field, Name, ...) int64_t Name = 0;
#include "engine/EngineOptions.def"
};

inline qwen_options loadOptions(const LoadOptions &from) {
  qwen_options to = {};
  to.size = sizeof(to);
#define QWEN_ENGINE_OPTION(Part, Type, Field, Name, ...)                       \
  to.Name = static_cast<decltype(to.Name)>(from.Name);
#include "engine/EngineOptions.def"
  return to;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_LOADOPTIONS_H
