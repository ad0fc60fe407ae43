//===- Pooling.cpp - How a folder makes embeddings ------------------------===//

#include "qwen/Import/Checkpoint/Pooling.h"

#include "qwen/ABI/ModelOutput.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Support/JsonValue.h"

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

/// Appends the name of a step.
static void addStep(std::string &names, const std::string &name) {
  names += (names.empty() ? "" : " and ") + name;
}

/// The name of the mode that the key "pooling_mode_mean_tokens" enables:
/// "mean".
static std::string modeOf(std::string_view key) {
  if (key == "lasttoken")
    return std::string(kLastPooling);
  return std::string(key.substr(0, key.rfind("_token")));
}

/// The modes of `path`, the config.json of a pooling. Older files have a
/// boolean for each mode, newer ones a name or an array of names.
static std::string readModes(const fs::path &path) {
  const std::optional<json> config = readJsonObject(path);
  if (!config)
    return std::string(kLastPooling);
  const JsonSource source = JsonSource::ofFile(path.string());
  const JsonValue root(*config, source);
  std::string modes;
  if (const auto named = root.findValue("pooling_mode")) {
    if (!named->isArray())
      return modeOf(named->string());
    for (const JsonValue &mode : named->elements())
      addStep(modes, modeOf(mode.string()));
  }
  constexpr std::string_view kMode = "pooling_mode_";
  for (const auto &[key, value] : config->items())
    if (key.starts_with(kMode) && root.at(key.c_str()).boolean())
      addStep(modes, modeOf(std::string_view(key).substr(kMode.size())));
  return modes.empty() ? "none" : modes;
}

std::string qwen::readPooling(const fs::path &dir) {
  const fs::path path = dir / "modules.json";
  const std::optional<std::string> text = readJsonText(path);
  if (!text)
    return readModes(dir / "1_Pooling" / "config.json");
  checkJson(*text, part::file(path.string()), {});
  const json parsed = json::parse(*text);
  const JsonSource source = JsonSource::ofFile(path.string());
  std::string pooling;
  for (const JsonValue &module : JsonValue(parsed, source).elements()) {
    const std::string &type = module.at("type").string();
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Pooling") {
      const JsonValue folder = module.at("path");
      if (folder.string().find('/') != std::string::npos ||
          folder.string() == "..")
        folder.fail("the name of a folder beside it");
      addStep(pooling, readModes(dir / folder.string() / "config.json"));
    } else if (name != "Transformer" && name != "Normalize") {
      addStep(pooling, name);
    }
  }
  return pooling.empty() ? "none" : pooling;
}
