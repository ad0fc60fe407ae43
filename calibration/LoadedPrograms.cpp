//===- LoadedPrograms.cpp - Compiled programs in this process -------------===//

#include "calibration/LoadedPrograms.h"

#include "qwen/Dialect/QwenDialect.h"

using namespace qwen;

static ElfMapping load(const ProgramCode &code) {
  const MemoryFile file;
  file.write(code.elf);
  return ElfMapping(file.path());
}

int64_t qwen::modelFact(mlir::ModuleOp module, const char *key) {
  return programsOf(module)
      .front()
      ->getAttrOfType<mlir::DictionaryAttr>(kModelAttr)
      .getAs<mlir::IntegerAttr>(key)
      .getInt();
}

LoadedPrograms::LoadedPrograms(const ProgramCode &code, int64_t context)
    : elf(load(code)), manifest(parsePrograms(code.manifest, "the code")) {
  manifest.model.name = "the model";
  manifest.model.context = context;
  for (const ProgramInfo &program : manifest.programs)
    entries.push_back(elf.function<ForwardFn>(program.name + "." +
                                              manifest.targets.front().name));
}

Mapping qwen::mapImage(const MemoryFile &file) {
  const File opened(file.path());
  return Mapping::file(opened, 0, opened.size(), kWeightsAlign);
}
