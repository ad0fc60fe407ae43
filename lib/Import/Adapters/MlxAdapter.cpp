//===- MlxAdapter.cpp - Adapters of MLX -----------------------------------===//

#include "Adapter.h"

#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Known.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;

/// Factors are transposed, except the factors of the embedding.
static constexpr RoleName kMlxRoles[] = {
    {".lora_a", TensorRole::Right, /*isEmbedding=*/false,
     /*isTransposed=*/true},
    {".lora_b", TensorRole::Left, /*isEmbedding=*/false, /*isTransposed=*/true},
    {".lora_a", TensorRole::Left, /*isEmbedding=*/true},
    {".lora_b", TensorRole::Right, /*isEmbedding=*/true},
    {".m", TensorRole::Norms},
    {".m", TensorRole::Norms, /*isEmbedding=*/true},
};

static constexpr std::string_view kMlxTypes[] = {"lora", "dora", "full"};

/// The tensors show what keys chose.
static constexpr std::string_view kMlxTraining[] = {"dropout", "keys"};
static constexpr KnownNames kMlxKnown[] = {{"training", kMlxTraining}};
/// Older versions multiplied the scale with alpha / rank.
static constexpr FixedKey kMlxFixed[] = {{"alpha", "null"}};

Adapter qwen::readMlx(const std::filesystem::path &path,
                      const ModelConfig &model) {
  const std::string file = (path / kAdapterConfig).string();
  const std::optional<nlohmann::json> json = readJsonObject(file);
  if (!json)
    throw Error(part::file(path.string()) + " has no " +
                part::needed(kAdapterConfig));
  JsonReads read;
  const JsonSource source = JsonSource::ofFile(file, &read);
  const JsonValue root(*json, source);

  Adapter adapter(path);
  adapter.roles = kMlxRoles;
  adapter.modelName = [&model](const std::string &name) {
    return folderModelName(model, name);
  };
  const auto type = root.findValue("fine_tune_type");
  if (type &&
      std::ranges::find(kMlxTypes, type->string()) == std::end(kMlxTypes))
    type->refuse("supported are \"lora\", \"dora\" and \"full\"");
  if (type && type->string() == "full") {
    adapter.roles = {};
    return adapter;
  }
  adapter.hasNorms = type && type->string() == "dora";
  const JsonValue parameters = root.at("lora_parameters");
  const JsonValue needed = parameters.at("rank");
  const double scale =
      parameters.at("scale").number(-kMostAdapterScale, kMostAdapterScale);
  adapter.scale = [file, scale, needed = needed.integer(1, kMaxModelWidth)](
                      const std::string &module, int64_t rank) {
    if (rank != needed)
      throw Error(part::file(file) + ": " +
                  part::subject("lora_parameters.rank") + " is " +
                  part::needed(needed) + " when the tensors of " +
                  quote(module) + " have " + part::found(rank));
    return scale;
  };
  adapter.unknownKeys = unknownKeys(parameters, {kMlxKnown, kMlxFixed});
  return adapter;
}
