//===- ConfigFuzz.cpp - config.json -------------------------------------===//

#include "Fuzz.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Import/Checkpoint/Config.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  folder.write("config.json", fuzz::asText(data, size));
  fuzz::parses(size, [] {
    ModelConfig model = readModelConfig(folder.path());
    fuzz::require(model.heads % model.kvHeads == 0 &&
                      model.hiddenSize % kGroup == 0 &&
                      model.heads * model.headDim % kGroup == 0 &&
                      model.intermediateSize % kGroup == 0 &&
                      model.headDim >= 16 && model.headDim <= 256,
                  "sizes that don't agree are taken");
    readGenerationConfig(folder.path(), model);
  });
  return 0;
}
