//===- AdapterFuzz.cpp - Adapters of a model ------------------------------===//
//
// The first byte says which file of an adapter the others are.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "qwen/Import/Adapters/Adapters.h"

#include <fstream>
#include <iterator>

using namespace qwen;
namespace fs = std::filesystem;

static constexpr char kPeft[] = "adapter_model.safetensors",
                      kMlx[] = "adapters.safetensors",
                      kConfig[] = "adapter_config.json",
                      kMlxConfig[] =
                          R"({"lora_parameters": {"rank": 2, "scale": 1}})";

static std::string contentOf(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Merges the adapter and reads an output of each weight, so that
/// AddressSanitizer sees a read elsewhere.
static void merge(const Checkpoint &model, const fs::path &adapter) {
  ModelConfig config = model.config();
  WeightSources weights = model.weights();
  const StoredTensors files = mergeAdapter({adapter}, config, weights);
  std::vector<float> values;
  for (const auto &[name, entry] : weights.all()) {
    const WeightShape &shape = entry.source->shape();
    values.resize(static_cast<size_t>(shape.k()));
    entry.source->read(shape.outputs() - 1, 1, values.data());
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const fs::path inputs = fs::path(QWEN_SOURCE_DIR) / "test/Inputs";
  static const std::unique_ptr<Checkpoint> model =
      openCheckpoint(inputs / "checkpoints/base-qwen2");
  static const std::string peftTensors =
      contentOf(inputs / "adapters/lora-qwen2-lora_bias" / kPeft);
  static const std::string peftConfig =
      contentOf(inputs / "adapters/lora-qwen2-lora_bias" / kConfig);
  if (size == 0)
    return 0;
  const std::string_view text = fuzz::asText(data + 1, size - 1);
  const fuzz::Folder folder;
  fs::path path = folder.path();
  switch (data[0] % 4) {
  case 0:
    folder.write(kConfig, text);
    folder.write(kPeft, peftTensors);
    break;
  case 1:
    folder.write(kConfig, peftConfig);
    folder.write(kPeft, text);
    break;
  case 2:
    folder.write(kConfig, kMlxConfig);
    folder.write(kMlx, text);
    break;
  default:
    folder.write("a.gguf", text);
    path /= "a.gguf";
  }
  fuzz::parses(size + peftTensors.size(), [&] { merge(*model, path); });
  return 0;
}
