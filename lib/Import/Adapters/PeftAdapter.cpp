//===- PeftAdapter.cpp - Adapters of PEFT ---------------------------------===//

#include "Adapter.h"

#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Known.h"
#include "qwen/Import/Checkpoint/Safetensors.h"
#include "qwen/Support/Json.h"
#include "qwen/Support/Pattern.h"
#include "qwen/Support/Text.h"

#include <cmath>
#include <memory>

using namespace qwen;
using Names = std::string_view;

static constexpr RoleName kPeftRoles[] = {
    {".lora_A.weight", TensorRole::Right},
    {".lora_B.weight", TensorRole::Left},
    {".lora_embedding_A", TensorRole::Left, /*isEmbedding=*/true,
     /*isTransposed=*/true},
    {".lora_embedding_B", TensorRole::Right, /*isEmbedding=*/true,
     /*isTransposed=*/true},
    {".lora_magnitude_vector", TensorRole::Norms},
    {".lora_magnitude_vector.weight", TensorRole::Norms},
    {".lora_magnitude_vector", TensorRole::Norms, /*isEmbedding=*/true},
    {".lora_B.bias", TensorRole::Bias},
};

//===----------------------------------------------------------------------===//
// adapter_config.json
//===----------------------------------------------------------------------===//

/// The tensors show what these chose.
static constexpr Names kPeftChoices[] = {"bias",
                                         "exclude_modules",
                                         "layers_pattern",
                                         "layers_to_transform",
                                         "modules_to_save",
                                         "target_modules",
                                         "task_type"};
static constexpr Names kPeftTraining[] = {
    "corda_config",  "ensure_weight_tying", "eva_config",     "inference_mode",
    "loftq_config",  "lora_dropout",        "lora_ga_config", "megatron_config",
    "megatron_core", "qalora_group_size",   "runtime_config"};
static constexpr Names kPeftOrigin[] = {"auto_mapping", "peft_version",
                                        "revision"};
static constexpr KnownNames kPeftKnown[] = {
    {"what the tensors show", kPeftChoices},
    {"training", kPeftTraining},
    {"origin", kPeftOrigin},
};
static constexpr FixedKey kPeftFixed[] = {
    {"alora_invocation_string", "null"},
    {"alora_invocation_tokens", "null"},
    {"arrow_config", "null"},
    {"fan_in_fan_out", "false"},
    {"layer_replication", "null", "[]"},
    {"monteclora_config", "null"},
    {"trainable_token_indices", "null"},
    {"use_bdlora", "null", "false"},
    {"velora_config", "null"},
};
/// How init_lora_weights begins where training changes the base model, too.
static constexpr Names kPeftChangesBase[] = {"corda", "loftq", "lora_ga",
                                             "olora", "pissa"};

static bool isSet(const JsonValue &root, const char *key) {
  const auto found = root.findValue(key);
  return found && found->boolean();
}

namespace {
/// A number, and others for modules by regular expressions; the first that
/// matches the whole name, or its end behind a dot, counts.
class ByModule {
public:
  /// Reads the key `key` of `root` and its pattern. `read` reads a number.
  template <typename ReadFn>
  ByModule(const JsonValue &root, const char *key, const char *pattern,
           ReadFn read)
      : common(read(root.at(key))) {
    if (const auto members = root.findValue(pattern))
      for (const auto &[regex, value] : members->members())
        others.emplace_back(
            std::make_shared<const Pattern>(regex, members->what()),
            read(value));
  }

  double of(std::string_view module) const {
    for (const auto &[regex, number] : others)
      for (size_t at = 0; at != module.npos; at = endBehindDot(module, at))
        if (regex->matchesWhole(module.substr(at)))
          return number;
    return common;
  }

private:
  static size_t endBehindDot(std::string_view module, size_t at) {
    const size_t dot = module.find('.', at);
    return dot == module.npos ? dot : dot + 1;
  }

  double common;
  /// Shared, because functions are copied.
  std::vector<std::pair<std::shared_ptr<const Pattern>, double>> others;
};
} // namespace

/// Throws Error for what would need another base model.
static void checkStart(const JsonValue &root) {
  const auto start = root.findValue("init_lora_weights");
  if (!start || start->is(true) || start->is(false))
    return;
  for (std::string_view name : kPeftChangesBase)
    if (start->string().starts_with(name))
      start->refuse("such an adapter belongs to a changed base model; save it "
                    "with path_initial_model_for_weight_conversion");
}

/// Throws Error for an adapter that names itself as its base model.
static void checkBase(const JsonValue &root,
                      const std::filesystem::path &path) {
  const auto base = root.findValue("base_model_name_or_path");
  if (base && (path / base->string() / "").lexically_normal() ==
                  (path / "").lexically_normal())
    base->refuse("an adapter is not its own base model");
}

/// `name` without what PEFT puts around the names of the base model.
static std::string baseName(std::string name) {
  constexpr std::string_view kPrefix = "base_model.model.",
                             kLayer = ".base_layer.";
  if (name.starts_with(kPrefix))
    name.erase(0, kPrefix.size());
  // A tensor of the base beside an update.
  if (const size_t at = name.rfind(kLayer); at != name.npos)
    name.erase(at, kLayer.size() - 1);
  return name;
}

/// `name` without the name of the adapter, which is in the names of a state
/// that PEFT did not save itself: "m.lora_A.default.weight" is
/// "m.lora_A.weight", and "m.modules_to_save.default.weight", a whole tensor,
/// "m.weight".
static std::string withoutAdapterName(const std::string &name) {
  constexpr std::string_view kWhole = ".modules_to_save.";
  for (const RoleName &row : kPeftRoles)
    if (name.ends_with(row.suffix))
      return name;
  for (const RoleName &row : kPeftRoles) {
    const size_t end = std::min(row.suffix.find('.', 1), row.suffix.size());
    const std::string_view ending = row.suffix.substr(end);
    const std::string module = std::string(row.suffix.substr(0, end)) + ".";
    const std::string begin = name.substr(
        0, name.ends_with(ending) ? name.size() - ending.size() : 0);
    const size_t at = begin.rfind(module);
    if (at != begin.npos && begin.find('.', at + module.size()) == begin.npos)
      return begin.substr(0, at) + std::string(row.suffix);
  }
  const size_t at = name.rfind(kWhole);
  const size_t end = at == name.npos ? at : name.find('.', at + kWhole.size());
  return end == name.npos ? name : name.substr(0, at) + name.substr(end);
}

namespace {
/// The names of the updates of parameters (target_parameters). PEFT wraps the
/// module with the parameters of all experts once for each of them,
/// gate_up_proj first, so that the names of its updates have no name of a
/// parameter.
class WrappedExperts {
public:
  explicit WrappedExperts(const JsonValue &root) {
    const auto targets = root.findValue("target_parameters");
    if (!targets || targets->isNull())
      return;
    for (const JsonValue &target : targets->elements()) {
      const std::string name = target.string();
      hasDown |= name.ends_with(kDown);
    }
  }

  /// `name`, with the name of the parameter behind the one of its module.
  std::string rename(const std::string &name) const {
    constexpr std::string_view kModule = ".mlp.experts.",
                               kInner = "base_layer.", kUpdate = "lora_";
    const size_t at = name.find(kModule);
    if (at == name.npos)
      return name;
    const size_t begin = at + kModule.size();
    const std::string_view rest = std::string_view(name).substr(begin);
    const bool isInner = rest.starts_with(kInner);
    if (!rest.substr(isInner ? kInner.size() : 0).starts_with(kUpdate))
      return name;
    const bool isUp = isInner || !hasDown;
    return name.substr(0, begin) + std::string(isUp ? kUp : kDown) + "." +
           std::string(rest.substr(isInner ? kInner.size() : 0));
  }

private:
  static constexpr std::string_view kUp = "gate_up_proj", kDown = "down_proj";
  bool hasDown = false;
};
} // namespace

Adapter qwen::readPeft(const std::filesystem::path &path,
                       const ModelConfig &model) {
  const std::string file = (path / kAdapterConfig).string();
  const std::optional<std::string> text = readJsonText(file);
  if (!text)
    throw Error(part::file(path.string()) + " has no " +
                part::needed(kAdapterConfig));
  JsonReads read;
  JsonSource source = JsonSource::ofFile(file, &read);
  source.keysOf = [&](const std::string &key) {
    return keysInOrder(*text, key);
  };
  const nlohmann::json json = parseJsonText(*text, part::file(file));
  const JsonValue root(json, source);
  if (const JsonValue type = root.at("peft_type"); type.string() != "LORA")
    type.refuse("supported is \"LORA\"");

  Adapter adapter(path);
  adapter.roles = kPeftRoles;
  adapter.hasNorms = isSet(root, "use_dora");
  adapter.plainName = [experts =
                           WrappedExperts(root)](const std::string &name) {
    return experts.rename(withoutAdapterName(name));
  };
  adapter.modelName = [&model](const std::string &name) {
    return folderModelName(model, baseName(name));
  };
  const ByModule ranks(root, "r", "rank_pattern", [](const JsonValue &value) {
    return static_cast<double>(value.integer(1, kMaxModelWidth));
  });
  const ByModule alphas(
      root, "lora_alpha", "alpha_pattern", [](const JsonValue &value) {
        return value.number(-kMostAdapterScale, kMostAdapterScale);
      });
  adapter.scale = [ranks, alphas, file, hasRoot = isSet(root, "use_rslora")](
                      const std::string &module, int64_t rank) {
    const std::string name = baseName(module);
    if (const auto needed = static_cast<int64_t>(ranks.of(name));
        needed != rank)
      throw Error(part::file(file) + ": " +
                  part::subject("r of " + quote(name)) + " is " +
                  part::needed(needed) + " when its tensors have rank " +
                  part::found(rank));
    const auto by = static_cast<double>(rank);
    return alphas.of(name) / (hasRoot ? std::sqrt(by) : by);
  };
  if (isSet(root, "use_qalora"))
    adapter.pool = root.at("qalora_group_size").integer(1, kMaxModelWidth);
  else
    adapter.poolsGroups = true;
  // Its tensors show where it is.
  isSet(root, "lora_bias");
  checkStart(root);
  checkBase(root, path);
  adapter.unknownKeys = unknownKeys(root, {kPeftKnown, kPeftFixed});
  return adapter;
}
