//===- Config.cpp - Configuration of a checkpoint's model -----------------===//

#include "qwen/Import/Checkpoint/Config.h"

#include "ConfigKeys.h"
#include "ModelReader.h"
#include "Qwen1.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Import/Checkpoint/Known.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"

using namespace qwen;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// config.json
//===----------------------------------------------------------------------===//

static Architecture parseArchitecture(const JsonValue &root) {
  const std::vector<JsonValue> names = root.at("architectures").elements();
  if (names.size() != 1)
    root.at("architectures").fail("an array of one name");
  for (const ArchitectureInfo &info : kArchitectures)
    if (names[0].string() == info.name)
      return static_cast<Architecture>(&info - kArchitectures);
  names[0].refuse(supportedArchitectures(&ArchitectureInfo::name));
}

/// Rejects a model_type that is not the architecture's. A text model inside a
/// model with vision has an ending behind it.
static void checkModelType(const JsonValue &object,
                           const ArchitectureInfo &info) {
  const auto type = object.findValue("model_type");
  if (!type || type->string() == info.modelType ||
      (info.hasAxes && type->string() == std::string(info.modelType) + "_text"))
    return;
  type->refuse("supported is " + quote(std::string(info.modelType)) + " of " +
               std::string(info.name));
}

/// `name` without what tells models with and without a head apart.
static std::string_view stemOf(std::string_view name) {
  for (std::string_view ending :
       {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model"})
    if (name.ends_with(ending))
      return name.substr(0, name.size() - ending.size());
  return name;
}

/// Rejects code of the checkpoint that computes another model. A class of the
/// same name as ours is taken for ours.
static void checkCode(const JsonValue &root, const ArchitectureInfo &info) {
  const auto code = root.findValue("auto_map");
  if (!code)
    return;
  for (const char *key :
       {"AutoModel", "AutoModelForCausalLM", "AutoModelForImageTextToText",
        "AutoModelForVision2Seq"}) {
    const auto found = code->findValue(key);
    if (!found)
      continue;
    // "REPOSITORY--FILE.CLASS", where the repository is optional.
    const std::string_view path = found->string();
    const std::string_view name = path.substr(path.rfind('.') + 1);
    if (name != info.name && (key != std::string_view("AutoModel") ||
                              stemOf(name) != stemOf(info.name)))
      found->refuse("supported is the class of architectures, " +
                    std::string(info.name));
  }
}

/// Reads YaRN's parameters. Rejects parameters that no Qwen model has.
static void parseYarn(const JsonValue &rope, ModelConfig &model) {
  for (const char *key : {"mscale", "mscale_all_dim"})
    if (const auto found = rope.findValue(key))
      found->refuse("supported is null");
  if (const auto truncate = rope.findValue("truncate");
      truncate && !truncate->boolean())
    truncate->refuse("supported is true");
  const auto number = [&](const char *key, double least, double other) {
    const auto found = rope.findValue(key);
    return found ? found->number(least, 1e6) : other;
  };
  Yarn yarn;
  yarn.factor = rope.at("factor").number(1, 1e6);
  const auto positions = rope.findValue("original_max_position_embeddings");
  yarn.positions =
      positions ? positions->integer(1, kMaxModelPosition) : model.maxPosition;
  yarn.slow = number("beta_slow", 1e-6, yarn.slow);
  yarn.fast = number("beta_fast", yarn.slow, yarn.fast);
  yarn.scale = number("attention_factor", 1e-6,
                      numerics::yarnAttentionFactor(yarn.factor));
  setYarn(model, yarn);
}

/// Reads the type of rope_parameters or rope_scaling. Returns whether it has
/// one.
static bool parseRopeType(const JsonValue &rope, ModelConfig &model) {
  // "type" is the older name.
  for (const char *key : {"rope_type", "type"})
    if (const auto type = rope.find(key)) {
      // The axes of "mrope" are equal in texts.
      const bool isPlain =
          type->string() == "default" ||
          (infoOf(model.architecture).hasAxes && type->string() == "mrope");
      if (type->string() == "yarn")
        parseYarn(rope, model);
      else if (!isPlain)
        type->refuse("supported are \"default\" and \"yarn\"");
      return true;
    }
  return false;
}

/// The number `key` of the rotary embedding. As in transformers, the first of
/// `objects` counts, then `root`, then the default. Throws Error if another
/// place has another number.
static JsonValue ropeNumber(const ConfigKeys &root,
                            const std::vector<JsonValue> &objects,
                            const char *key, double least, double most) {
  const bool isInner = !objects.empty() && objects.front().find(key);
  const JsonValue result = isInner ? objects.front().at(key) : root.get(key);
  const double number = result.number(least, most);
  const std::string why = isInner ? "as in " + objects.front().name()
                          : root.find(key)
                              ? "as beside it"
                              : "the default where rope_scaling lacks it";
  const auto check = [&](const JsonValue &object) {
    if (const auto other = object.findValue(key);
        other && other->number(least, most) != number)
      other->fail(json(number).dump() + ", " + why + ",");
  };
  std::ranges::for_each(objects, check);
  check(root);
  return result;
}

/// Reads the part of each head that is rotated. Kernels rotate multiples of 8
/// values.
static void parsePartialRotary(const ConfigKeys &root,
                               const std::vector<JsonValue> &objects,
                               ModelConfig &model) {
  constexpr const char *kKey = "partial_rotary_factor";
  model.rotatedDim = model.headDim;
  if (!layersOf(model.architecture).rotatesPart) {
    const auto check = [&](const JsonValue &object) {
      if (const auto factor = object.findValue(kKey);
          factor && factor->number(0, 1) != 1)
        factor->refuse("supported is 1");
    };
    check(root);
    std::ranges::for_each(objects, check);
    return;
  }
  const JsonValue factor = ropeNumber(root, objects, kKey, 0, 1);
  const double rotated =
      factor.number(0, 1) * static_cast<double>(model.headDim);
  model.rotatedDim = static_cast<int64_t>(rotated);
  if (model.rotatedDim < 8 || model.rotatedDim % 8 != 0 ||
      static_cast<double>(model.rotatedDim) != rotated)
    factor.fail("a part of head_dim, " + std::to_string(model.headDim) +
                ", that is a multiple of 8");
}

/// Reads the rotary embedding from rope_scaling, without one from
/// rope_parameters (transformers 5), and from the keys beside them. Throws
/// Error if both are there and differ.
static void parseRope(const ConfigKeys &root, ModelConfig &model) {
  std::vector<JsonValue> objects;
  const auto scaling = root.findValue("rope_scaling");
  const auto parameters = root.findValue("rope_parameters");
  const ModelConfig unscaled = model;
  if (scaling) {
    if (!parseRopeType(*scaling, model))
      scaling->refuse("supported is null or an object with a type");
    objects.push_back(*scaling);
  }
  if (parameters) {
    ModelConfig other = unscaled;
    parseRopeType(*parameters, other);
    if (!scaling)
      model = other;
    else if (other.yarn != model.yarn)
      parameters->error("scales positions otherwise than " +
                        part::needed(scaling->name()) +
                        ", which counts; remove one of them");
    objects.push_back(*parameters);
  }
  parsePartialRotary(root, objects, model);
  model.ropeTheta =
      ropeNumber(root, objects, "rope_theta", 1e-30, 1e30).number(1e-30, 1e30);
}

/// The keys of a quantization configuration: the key of most libraries, the
/// older key of compressed-tensors, and the key of MLX, which repeats the
/// configuration under the first.
static constexpr const char *kQuantizationKeys[] = {
    "quantization_config", "compression_config", "quantization"};
static constexpr char kMlxKey[] = "quantization";

/// The first of these keys that `object` has, or null. All count as read. A
/// form of weights reads their inner keys.
static const char *findQuantization(const JsonValue &object) {
  const char *first = nullptr;
  for (const char *key : kQuantizationKeys)
    if (object.findValue(key) && !first)
      first = key;
  return first;
}

/// Takes the value of `key` out of `value`, the JSON of `object`.
static QuantizationConfig takeQuantization(const JsonValue &object, json &value,
                                           const char *key,
                                           const std::string &path) {
  QuantizationConfig result;
  result.file = path;
  result.key = object.at(key).name();
  const bool isObject = object.at(key).isObject();
  if (const auto method =
          isObject ? object.at(key).findValue("quant_method") : std::nullopt)
    result.method = method->string();
  else if (object.findValue(kMlxKey))
    result.method = "mlx";
  result.value = std::move(value.at(key));
  return result;
}

/// The configuration of a checkpoint of AutoGPTQ, in a file of its own, if
/// there is one.
static QuantizationConfig readQuantizeConfig(const std::filesystem::path &dir) {
  const std::string path = (dir / "quantize_config.json").string();
  std::optional<json> config = readJsonObject(path);
  if (!config)
    return {};
  return {path, "", "gptq", std::move(*config)};
}

/// Reads the sizes of linear attention, and rejects other forms of it and of
/// gated attention.
static LinearAttention parseLinear(const ConfigKeys &root,
                                   const ModelConfig &model) {
  if (const auto gate = root.findValue("attn_output_gate");
      gate && !gate->boolean())
    gate->refuse("supported is true");
  if (const auto type = root.findValue("output_gate_type");
      type && type->string() != "swish" && type->string() != "silu")
    type->refuse("supported is \"swish\"");
  root.get("linear_conv_kernel_dim")
      .integer(kConvolutionTaps, kConvolutionTaps);
  const auto dim = [&](const char *key) {
    return root.get(key).multiple(kGroup, kGroup, 256);
  };
  const auto count = [&](const char *key) {
    return root.get(key).integer(1, kMaxModelCount);
  };
  const LinearAttention linear = {
      count("linear_num_key_heads"), dim("linear_key_head_dim"),
      count("linear_num_value_heads"), dim("linear_value_head_dim")};
  if (linear.valueHeads % linear.keyHeads != 0)
    root.get("linear_num_value_heads")
        .fail("a multiple of linear_num_key_heads, " +
              std::to_string(linear.keyHeads) + ",");
  if (model.headDim % kGroup != 0)
    root.get("head_dim").fail("a multiple of " + std::to_string(kGroup));
  return linear;
}

/// Reads the kinds of the layers. Some may have `linear` if there is one.
static void parseLayerKinds(const JsonValue &root,
                            const std::optional<LinearAttention> &linear,
                            ModelConfig &model) {
  model.layerKinds.resize(static_cast<size_t>(model.layers));
  const auto types = root.findValue("layer_types");
  if (!types) {
    if (!linear)
      return;
    const auto found = root.findValue("full_attention_interval");
    const int64_t interval = found ? found->integer(1, kMaxModelCount) : 4;
    for (int64_t layer = 0; layer < model.layers; ++layer)
      if ((layer + 1) % interval != 0)
        model.layerKinds[static_cast<size_t>(layer)] = *linear;
    return;
  }
  const std::vector<JsonValue> layers = types->elements();
  if (layers.size() != static_cast<size_t>(model.layers))
    types->error("has " + std::to_string(layers.size()) +
                 " elements when num_hidden_layers is " +
                 std::to_string(model.layers));
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const JsonValue &type = layers[layer];
    if (linear && type.string() == "linear_attention")
      model.layerKinds[layer] = *linear;
    else if (type.string() != "full_attention")
      type.refuse(linear ? "supported are \"full_attention\" and "
                           "\"linear_attention\""
                         : "supported is \"full_attention\"");
  }
}

/// The number of experts, which transformers 5 gives another name.
static int64_t parseExpertCount(const ConfigKeys &root) {
  const auto count = root.findValue("num_experts");
  const auto local = root.findValue("num_local_experts");
  const int64_t experts = (count || !local ? root.get("num_experts") : *local)
                              .integer(1, kMaxExperts);
  if (local && local->integer(1, kMaxExperts) != experts)
    local->fail(std::to_string(experts) + ", as in num_experts,");
  return experts;
}

static ExpertsShape parseExperts(const ConfigKeys &root,
                                 const LayerTraits &layers) {
  const auto width = [&](const char *key) {
    return root.get(key).multiple(kGroup, kGroup, kMaxModelWidth);
  };
  ExpertsShape experts = {};
  experts.count = parseExpertCount(root);
  experts.active = root.get("num_experts_per_tok").integer(1, experts.count);
  experts.width = width("moe_intermediate_size");
  if (layers.hasSharedExpert)
    experts.sharedWidth = width("shared_expert_intermediate_size");
  if (!layers.normalizesExperts) {
    experts.normalized = root.get("norm_topk_prob").boolean();
    return experts;
  }
  experts.normalized = true;
  if (const auto normalized = root.findValue("norm_topk_prob");
      normalized && !normalized->boolean())
    normalized->refuse("supported is true");
  return experts;
}

/// Reads which layers have experts: each `decoder_sparse_step`-th one that is
/// not among `mlp_only_layers`.
static void parseMlpKinds(const ConfigKeys &root, ModelConfig &model) {
  std::vector<MlpKind> kinds(static_cast<size_t>(model.layers));
  if (!layersOf(model.architecture).hasExperts) {
    model.setMlpKinds(std::move(kinds));
    return;
  }
  model.experts = parseExperts(root, layersOf(model.architecture));
  const auto found = root.findValue("decoder_sparse_step");
  const int64_t step = found ? found->integer(1, kMaxModelCount) : 1;
  for (int64_t layer = step - 1; layer < model.layers; layer += step)
    kinds[static_cast<size_t>(layer)] = MlpKind::Experts;
  if (const auto dense = root.findValue("mlp_only_layers"))
    for (const JsonValue &layer : dense->elements())
      // transformers passes over numbers of no layer.
      if (const int64_t number = layer.integer(0, kMaxModelCount);
          number < model.layers)
        kinds[static_cast<size_t>(number)] = MlpKind::Dense;
  model.setMlpKinds(std::move(kinds));
}

static constexpr SizeKey kConfigSizes[] = {
    {&ModelShape::vocabSize, "vocab_size"},
    {&ModelShape::hiddenSize, "hidden_size"},
    {&ModelShape::layers, "num_hidden_layers"},
    {&ModelShape::heads, "num_attention_heads"}};
static constexpr SizeKey kMlpSizes[] = {
    {&ModelShape::intermediateSize, "intermediate_size"}};
/// Where all layers have experts.
static constexpr SizeKey kExpertSizes[] = {
    {&ModelShape::intermediateSize, "moe_intermediate_size"}};

/// Reads the sizes and checks that they agree with each other.
static void parseSizes(const ConfigKeys &root, const std::string &path,
                       ModelConfig &model) {
  const auto get = [&](const SizeKey &key) { return root.get(key.key); };
  readSizes(kConfigSizes, get, model);
  if (root.find("intermediate_size") || root.hasDefault("intermediate_size"))
    readSizes(kMlpSizes, get, model);
  else
    readSizes(kExpertSizes, get, model);
  const JsonValue kvHeads = root.get("num_key_value_heads");
  // In transformers, null means no head groups.
  model.kvHeads =
      kvHeads.isNull() ? model.heads : kvHeads.integer(1, kMaxModelCount);
  model.maxPosition =
      root.get("max_position_embeddings").integer(1, kMaxModelPosition);

  if (model.heads % model.kvHeads != 0)
    root.get("num_attention_heads")
        .fail("a multiple of num_key_value_heads, " +
              std::to_string(model.kvHeads) + ",");

  if (root.findValue("head_dim") || root.hasDefault("head_dim")) {
    model.headDim = root.get("head_dim").integer(1, kMaxModelCount);
  } else {
    if (model.hiddenSize % model.heads != 0)
      root.get("hidden_size")
          .fail("a multiple of num_attention_heads, " +
                std::to_string(model.heads) + ",");
    model.headDim = model.hiddenSize / model.heads;
  }
  checkSizes(path, model);
}

/// Reads a model of any architecture but Qwen 1. `root` has its keys, and
/// `whole` all keys of the file.
static void parseModel(const JsonValue &whole, const ConfigKeys &root,
                       const std::string &path, ModelConfig &model) {
  parseSizes(root, path, model);
  // Qwen2 has biases regardless of this key.
  if (layersOf(model.architecture).hasBiases)
    root.find("attention_bias");
  std::optional<LinearAttention> linear;
  if (layersOf(model.architecture).hasLinear)
    linear = parseLinear(root, model);
  parseLayerKinds(root, linear, model);
  parseMlpKinds(root, model);
  parseRope(root, model);
  model.rmsNormEps = root.get("rms_norm_eps").number(1e-30, 1);
  const auto own = root.findValue("mtp_use_dedicated_embeddings");
  model.hasOwnDraftEmbedding = own && own->boolean();
  const auto outer = whole.findValue("tie_word_embeddings");
  const auto inner = root.findValue("tie_word_embeddings");
  const auto &tied = outer ? outer : inner;
  model.tied = tied && tied->boolean();
}

/// Adds a note about keys that config.json leaves out.
static void noteDefaults(const ConfigDefaults &defaults, ModelConfig &model) {
  if (!defaults.taken.empty())
    model.notes.push_back(
        "not in config.json, so with the default of transformers: " +
        listed(std::vector(defaults.taken.begin(), defaults.taken.end())));
}

/// Adds a note about keys of `config` that nobody read. Beside text_config,
/// older libraries write its keys a second time.
static void noteUnread(const json &config, const JsonValue &whole,
                       ModelConfig &model) {
  std::vector<std::string> unknown = unknownKeys(whole, knownConfigKeys());
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object())
    std::erase_if(unknown, [&](const std::string &name) {
      return text->contains(name) && config.contains(name) &&
             text->at(name) == config.at(name);
    });
  noteUnusedKeys("unknown keys", unknown, model);
}

ModelConfig qwen::readModelConfig(const std::filesystem::path &dir) {
  requireDirectory(dir);
  const std::string path = (dir / "config.json").string();
  std::optional<json> config = readJsonObject(path);
  if (!config)
    throw Error(part::file(dir.string()) + " has no config.json: " +
                part::needed("the folder of a Hugging Face checkpoint") +
                " is needed");
  JsonReads read;
  const JsonSource source = JsonSource::ofFile(path, &read);
  const JsonValue whole(*config, source);
  ModelConfig model;
  model.architecture = parseArchitecture(whole);
  const ArchitectureInfo &info = infoOf(model.architecture);
  ConfigDefaults defaults(info, path);
  const auto text =
      info.hasVision ? whole.findValue("text_config") : std::nullopt;
  const JsonValue &root = text ? *text : whole;
  for (const JsonValue &object : {whole, root}) {
    checkModelType(object, info);
    checkCode(object, info);
    findQuantization(object);
  }
  if (model.architecture == Architecture::Qwen1)
    parseQwen1Config(root, path, model);
  else
    parseModel(whole, ConfigKeys(root, defaults), path, model);
  noteDefaults(defaults, model);
  noteUnread(*config, whole, model);
  if (const char *key = findQuantization(whole))
    model.quantization = takeQuantization(whole, *config, key, path);
  else if (const char *inner = findQuantization(root))
    model.quantization =
        takeQuantization(root, config->at("text_config"), inner, path);
  else
    model.quantization = readQuantizeConfig(dir);
  return model;
}

//===----------------------------------------------------------------------===//
// generation_config.json
//===----------------------------------------------------------------------===//

GenerationConfig qwen::readGenerationConfig(const std::filesystem::path &dir,
                                            ModelConfig &model) {
  GenerationConfig result;
  std::set<std::string> beyond;
  const auto readTokens = [&](const JsonValue &root,
                              std::set<std::string> &ignored) {
    parseSpecialTokens(root, model.vocabSize, result, &ignored);
  };
  for (const char *name : {"generation_config.json", "config.json"}) {
    const std::string path = (dir / name).string();
    const std::optional<json> config = readJsonObject(path);
    if (!config)
      continue;
    JsonReads read;
    const JsonSource source = JsonSource::ofFile(path, &read);
    const JsonValue root(*config, source);
    readTokens(root, beyond);
    if (const auto text = root.findValue("text_config"))
      readTokens(*text, beyond);
    if (name != std::string_view("generation_config.json"))
      continue;
    parseSampling(root, result);
    noteUnusedKeys("keys of " + std::string(name),
                   unknownKeys(root, knownGenerationKeys()), model);
  }
  const ConfigDefaults defaults(infoOf(model.architecture), "");
  std::set<std::string> ignored;
  readTokens(JsonValue(defaults.values, defaults.source), ignored);
  noteUnusedKeys("tokens beyond the vocabulary", {beyond.begin(), beyond.end()},
                 model);
  return result;
}
