//===- GgufAdapter.cpp - Adapters in GGUF files ---------------------------===//

#include "Adapter.h"

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Import/Checkpoint/Known.h"
#include "qwen/Support/Text.h"

using namespace qwen;

/// Both factors of the embedding belong to its transposed matrix.
static constexpr RoleName kGgufRoles[] = {
    {".weight.lora_a", TensorRole::Right},
    {".weight.lora_b", TensorRole::Left},
    {".weight.lora_a", TensorRole::Left, /*isEmbedding=*/true},
    {".weight.lora_b", TensorRole::Right, /*isEmbedding=*/true,
     /*isTransposed=*/true},
};

static constexpr std::string_view kGgufPrompts[] = {"lora.prompt_prefix",
                                                    "lora.task_name"};
static constexpr KnownNames kGgufKnown[] = {{"prompts", kGgufPrompts}};
static constexpr FixedKey kGgufFixed[] = {{"alora.invocation_tokens", "null"}};
static constexpr std::string_view kGgufElsewhere[] = {"general.", "quantize."};

/// Throws Error unless the string `key` is `needed`.
static void checkString(const JsonValue &root, const char *key,
                        std::string_view needed) {
  if (const JsonValue value = root.at(key); value.string() != needed)
    value.refuse("supported is " + quote(needed));
}

Adapter qwen::readGguf(const std::filesystem::path &path,
                       const ModelConfig &model) {
  const std::string where = path.string();
  Adapter adapter(path.parent_path());
  GgufFile gguf = parseGguf(adapter.files.map(path.filename().string()), where);
  JsonReads read;
  const JsonSource source = JsonSource::ofFile(where, &read);
  const JsonValue root(gguf.values, source);
  checkString(root, "general.type", "adapter");
  checkString(root, "adapter.type", "lora");
  const ArchitectureInfo &info = infoOf(model.architecture);
  if (info.ggufName.empty())
    root.at("general.architecture")
        .refuse("a " + std::string(info.name) +
                " needs an adapter in a folder");
  checkString(root, "general.architecture", info.ggufName);

  adapter.roles = kGgufRoles;
  adapter.hasWholeTensors = false;
  adapter.isGguf = true;
  adapter.modelName = [&model](const std::string &name) {
    return ggufModelName(model.architecture, name);
  };
  // As llama.cpp: without alpha, the scale is 1.
  const auto found = root.findValue("adapter.lora.alpha");
  const double alpha =
      found ? found->number(-kMostAdapterScale, kMostAdapterScale) : 0;
  adapter.scale = [alpha](const std::string &, int64_t rank) {
    return alpha == 0 ? 1 : alpha / static_cast<double>(rank);
  };
  adapter.unknownKeys =
      unknownKeys(root, {kGgufKnown, kGgufFixed, "adapter.", kGgufElsewhere});
  adapter.tensors = std::move(gguf.tensors);
  for (StoredTensor &tensor : adapter.tensors)
    dropOnes(tensor, 2);
  return adapter;
}
