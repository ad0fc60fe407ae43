//===- GenerationConfigFuzz.cpp - generation_config.json ----------------===//

#include "Fuzz.h"

#include "qwen/Import/Checkpoint/Config.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const fuzz::Folder folder;
  ModelConfig model = {};
  model.vocabSize = 1000;
  folder.write("generation_config.json", fuzz::asText(data, size));
  fuzz::parses(size, [&] {
    const GenerationConfig config = readGenerationConfig(folder.path(), model);
    for (int32_t id : config.eosTokenIds)
      fuzz::require(id >= 0 && id < model.vocabSize, "an id is no token");
    fuzz::require(config.temperature >= 0 && config.topK >= 0 &&
                      config.topP <= 1 && config.minP <= 1 &&
                      config.repetitionPenalty > 0,
                  "a number out of its range is taken");
  });
  return 0;
}
