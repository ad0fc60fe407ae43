//===- ManifestFuzz.cpp - Manifests of artifacts ------------------------===//

#include "Fuzz.h"

#include "artifact/Manifest.h"

using namespace qwen;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  constexpr uint64_t kWeightBytes = 4096;
  fuzz::parses(size, [&] {
    const Manifest manifest =
        parseManifest(fuzz::asText(data, size), "f", kWeightBytes);
    fuzz::require(!manifest.targets.empty(), "a manifest without targets");
    for (const TensorInfo &tensor : manifest.tensors)
      fuzz::require(tensor.offset <= kWeightBytes &&
                        tensor.bytes <= kWeightBytes - tensor.offset,
                    "a tensor lies outside of the weights");
    for (int32_t id : manifest.generation.eosTokenIds)
      fuzz::require(id >= 0 && id < manifest.model.vocabSize,
                    "an id is no token");
  });
  return 0;
}
