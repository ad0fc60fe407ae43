//===- LoadedPrograms.h - Compiled programs in this process -----*- C++ -*-===//

#ifndef QWEN_CALIBRATION_LOADEDPROGRAMS_H
#define QWEN_CALIBRATION_LOADEDPROGRAMS_H

#include "artifact/ElfMapping.h"
#include "artifact/Manifest.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/CodeGen/Artifact/ArtifactWriter.h"
#include "qwen/Support/MemoryFile.h"

#include <vector>

namespace qwen {

/// A fact of the model of the first program: an integer of kModelAttr.
int64_t modelFact(mlir::ModuleOp module, const char *key);

/// Code of compileProgram, with the facts that an engine needs.
struct LoadedPrograms {
  /// Sequences have up to `context` positions. Throws Error.
  LoadedPrograms(const ProgramCode &code, int64_t context);

  const ElfMapping elf;
  Manifest manifest;
  std::vector<ForwardFn *> entries;
};

/// The image of packImage that `file` has. Throws Error.
Mapping mapImage(const MemoryFile &file);

} // namespace qwen

#endif // QWEN_CALIBRATION_LOADEDPROGRAMS_H
