//===- Manifest.cpp - Facts of a compiled model ---------------------------===//

#include "artifact/Manifest.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/Error.h"
#include "qwen/ABI/Text.h"

#include <nlohmann/json.hpp>

#include <cmath>

using namespace qwen;
using nlohmann::json;

static constexpr int64_t kMaxDimension = int64_t{1} << 31;
static constexpr int64_t kMaxContext = int64_t{1} << 30;
static constexpr int64_t kMaxBytes = int64_t{1} << 46;

namespace {
/// A value of the manifest with the path that names it in errors.
class Value {
public:
  Value(const json &value, std::string path, const std::string &file)
      : value(value), path(std::move(path)), file(file) {}

  [[noreturn]] void fail(const std::string &needed) const {
    throw Error(file + ": in its manifest, " + path + " is " +
                (value.is_structured() ? value.type_name() : value.dump()) +
                " when " + needed + " is needed");
  }

  Value at(const std::string &key) const {
    if (!value.is_object())
      fail("an object");
    const auto found = value.find(key);
    const std::string name = path.empty() ? key : path + "." + key;
    if (found == value.end())
      throw Error(file + ": its manifest has no " + name);
    return Value(*found, name, file);
  }
  std::optional<Value> find(const std::string &key) const {
    if (!value.is_object())
      fail("an object");
    const auto found = value.find(key);
    if (found == value.end() || found->is_null())
      return std::nullopt;
    return Value(*found, path + "." + key, file);
  }

  /// An integer from `least` to `most` that `divisor` divides.
  int64_t multiple(int64_t divisor, int64_t least, int64_t most) const {
    const int64_t result = integer(least, most);
    if (result % divisor != 0)
      fail("a multiple of " + std::to_string(divisor));
    return result;
  }

  template <typename FnType> void forEach(FnType visit) const {
    if (!value.is_array())
      fail("an array");
    for (size_t i = 0; i < value.size(); ++i)
      visit(Value(value[i], path + "[" + std::to_string(i) + "]", file));
  }

  int64_t integer(int64_t least, int64_t most) const {
    const auto inRange = [&] {
      if (value.is_number_unsigned())
        return value.get<uint64_t>() <= uint64_t(INT64_MAX) &&
               value.get<int64_t>() >= least && value.get<int64_t>() <= most;
      return value.is_number_integer() && value.get<int64_t>() >= least &&
             value.get<int64_t>() <= most;
    };
    if (!inRange())
      fail("an integer from " + std::to_string(least) + " to " +
           std::to_string(most));
    return value.get<int64_t>();
  }
  double number(double least, double most) const {
    const double found = value.is_number() ? value.get<double>() : NAN;
    if (!(found >= least && found <= most))
      fail("a number from " + json(least).dump() + " to " + json(most).dump());
    return found;
  }
  bool boolean() const {
    if (!value.is_boolean())
      fail("true or false");
    return value.get<bool>();
  }
  /// Printable, for the commands show the names of a manifest.
  std::string string() const {
    if (!value.is_string())
      fail("a string");
    return printable(value.get_ref<const std::string &>());
  }
  bool isArray() const { return value.is_array(); }

private:
  const json &value;
  std::string path;
  const std::string &file;
};
} // namespace

static ModelInfo parseModel(const Value &value) {
  ModelInfo model;
  model.architecture = value.at("architecture").string();
  model.name = value.at("name").string();
  model.vocabSize = value.at("vocab_size").integer(1, kMaxDimension);
  model.tokenizerVocab =
      value.at("tokenizer_vocab").integer(1, model.vocabSize);
  model.hiddenSize =
      value.at("hidden_size").multiple(kGroup, kGroup, kMaxDimension);
  model.layers = value.at("layers").integer(1, 65536);
  model.heads = value.at("heads").integer(1, 65536);
  model.kvHeads = value.at("kv_heads").integer(1, model.heads);
  if (model.heads % model.kvHeads != 0)
    value.at("kv_heads")
        .fail("a divisor of heads, " + std::to_string(model.heads) + ",");
  model.headDim = value.at("head_dim").multiple(8, 16, 256);
  if (model.heads * model.headDim % kGroup != 0)
    value.at("heads").fail("a number that gives rows of a multiple of " +
                           std::to_string(kGroup) + " with heads of " +
                           std::to_string(model.headDim) + " values");
  model.intermediateSize =
      value.at("intermediate_size").multiple(kGroup, kGroup, kMaxDimension);
  model.ropeTheta = value.at("rope_theta").number(1e-30, 1e30);
  model.rmsNormEps = value.at("rms_norm_eps").number(0, 1);
  model.tied = value.at("tied").boolean();
  model.context = value.at("context").integer(1, kMaxContext);
  const auto most = value.find("max_context");
  model.maxContext =
      most ? most->integer(model.context, kMaxContext) : model.context;
  return model;
}

static TargetInfo parseTarget(const Value &value) {
  TargetInfo target;
  const Value name = value.at("name");
  target.name = name.string();
  if (target.name.empty())
    name.fail("a name");
  const Value arch = value.at("arch");
  if (arch.string() == archName(Arch::X86_64))
    target.arch = Arch::X86_64;
  else if (arch.string() == archName(Arch::AArch64))
    target.arch = Arch::AArch64;
  else
    arch.fail("\"x86-64\" or \"aarch64\"");
  value.at("features").forEach([&](const Value &feature) {
    const std::optional<CpuFeature> parsed = parseFeature(feature.string());
    if (!parsed || featureArch(*parsed) != target.arch)
      feature.fail("a CPU feature of " + std::string(archName(target.arch)) +
                   " that this version knows");
    target.features.insert(*parsed);
  });
  value.at("kernels").forEach(
      [&](const Value &kernel) { target.kernels.push_back(kernel.string()); });
  if (const auto ops = value.find("op_kernels"))
    ops->forEach([&](const Value &indices) {
      std::vector<size_t> &kernels = target.opKernels.emplace_back();
      indices.forEach([&](const Value &index) {
        kernels.push_back(static_cast<size_t>(
            index.integer(0, static_cast<int64_t>(target.kernels.size()) - 1)));
      });
    });
  return target;
}

static WeightFormat parseFormat(const Value &value) {
  const std::optional<WeightFormat> format = parseWeightFormat(value.string());
  if (!format)
    value.fail("\"f32\", \"bf16\", \"q8_0\", \"q4_0\" or \"q4_g128\"");
  return *format;
}

static KvInfo parseKv(const Value &value, const ModelInfo &model) {
  KvInfo kv;
  const Value format = value.at("format");
  const std::optional<KvFormat> parsed = parseKvFormat(format.string());
  if (!parsed)
    format.fail("\"f32\" or \"f16\"");
  kv.format = *parsed;
  value.at("page_tokens").integer(kPageTokens, kPageTokens);
  // At most 2^16 * 2^16 * 2^16 * 2^3: no overflow.
  const int64_t tokenBytes = model.layers * model.kvHeads * model.headDim * 2 *
                             kvElementBytes(kv.format);
  kv.tokenBytes = value.at("token_bytes").integer(tokenBytes, tokenBytes);
  kv.pageBytes =
      value.at("page_bytes")
          .integer(tokenBytes * kPageTokens, tokenBytes * kPageTokens);
  return kv;
}

static TensorInfo parseTensor(const Value &value, uint64_t weightBytes) {
  TensorInfo tensor;
  tensor.name = value.at("name").string();
  value.at("shape").forEach([&](const Value &size) {
    tensor.shape.push_back(size.integer(1, kMaxDimension));
  });
  tensor.format = parseFormat(value.at("format"));
  const int64_t most =
      std::min<uint64_t>(weightBytes, static_cast<uint64_t>(kMaxBytes));
  const int64_t offset = value.at("offset").integer(0, most);
  if (offset % static_cast<int64_t>(kTensorAlign) != 0)
    value.at("offset").fail("a multiple of " + std::to_string(kTensorAlign));
  tensor.offset = static_cast<uint64_t>(offset);
  tensor.bytes =
      static_cast<uint64_t>(value.at("bytes").integer(0, most - offset));
  value.at("segments").forEach([&](const Value &segment) {
    tensor.segments.push_back({segment.at("name").string(),
                               segment.at("rows").integer(1, kMaxDimension)});
  });
  return tensor;
}

static OpWork parseWork(const Value &value) {
  OpWork work;
  work.kind = value.at("kind").string();
  const auto number = [&](const char *key, int64_t &to) {
    if (const auto found = value.find(key))
      to = found->integer(0, kMaxBytes);
  };
  number("weight_bytes", work.weightBytes);
  number("row_bytes", work.rowBytes);
  number("macs", work.macs);
  number("position_bytes", work.positionBytes);
  number("position_macs", work.positionMacs);
  if (const auto found = value.find("output_rows"))
    work.outputRows = found->boolean();
  return work;
}

static GenerationConfig parseGeneration(const Value &value,
                                        const ModelInfo &model) {
  GenerationConfig result;
  const auto number = [&](const char *key, double least, double most,
                          double &to) {
    if (const auto found = value.find(key))
      to = found->number(least, most);
  };
  if (const auto found = value.find("do_sample"))
    result.doSample = found->boolean();
  number("temperature", 0, 1e6, result.temperature);
  if (const auto found = value.find("top_k"))
    result.topK = found->integer(0, kMaxDimension);
  number("top_p", 0, 1, result.topP);
  number("min_p", 0, 1, result.minP);
  number("repetition_penalty", 1e-6, 1e6, result.repetitionPenalty);
  const auto id = [&](const Value &token) {
    return static_cast<int32_t>(token.integer(0, model.vocabSize - 1));
  };
  if (const auto found = value.find("bos_token_id"))
    result.bosTokenId = id(*found);
  if (const auto found = value.find("eos_token_id")) {
    if (found->isArray())
      found->forEach(
          [&](const Value &token) { result.eosTokenIds.push_back(id(token)); });
    else
      result.eosTokenIds.push_back(id(*found));
  }
  return result;
}

std::string ModelInfo::describeContext() const {
  std::string text =
      "the model was compiled for a context of " + std::to_string(context);
  if (maxContext > context)
    text += "; recompile it with qwen-opt --context for up to " +
            std::to_string(maxContext);
  return text;
}

const TargetInfo *Manifest::bestTarget(Arch arch,
                                       CpuFeatureSet features) const {
  for (const TargetInfo &target : targets)
    if (target.arch == arch && features.containsAll(target.features))
      return &target;
  return nullptr;
}

Manifest qwen::parseManifest(std::string_view text, const std::string &file,
                             uint64_t weightBytes) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception &) {
    throw Error(file + " is damaged: its manifest is not JSON");
  }
  const Value root(parsed, "", file);
  Manifest manifest;
  manifest.compiler = root.at("compiler").string();
  manifest.model = parseModel(root.at("model"));
  root.at("targets").forEach([&](const Value &value) {
    TargetInfo target = parseTarget(value);
    for (const TargetInfo &other : manifest.targets) {
      if (other.arch != target.arch)
        value.at("arch").fail('"' + std::string(archName(other.arch)) + '"');
      if (other.name == target.name)
        value.at("name").fail("another name than that of the targets before");
    }
    manifest.targets.push_back(std::move(target));
  });
  if (manifest.targets.empty())
    root.at("targets").fail("at least one target");
  manifest.weights = parseFormat(root.at("weights").at("format"));
  manifest.kv = parseKv(root.at("kv"), manifest.model);
  const Value limits = root.at("limits");
  manifest.limits.tokens = limits.at("tokens").integer(1, 1 << 20);
  manifest.limits.rows = limits.at("rows").integer(1, manifest.limits.tokens);
  manifest.arenaBytes = root.at("arena_bytes").integer(0, kMaxBytes);
  manifest.outputStride =
      root.at("output_stride")
          .integer(manifest.model.vocabSize,
                   alignTo(manifest.model.vocabSize, kPanelRows));
  root.at("ops").forEach(
      [&](const Value &name) { manifest.ops.push_back(name.string()); });
  const Value work = root.at("work");
  work.forEach(
      [&](const Value &of) { manifest.work.push_back(parseWork(of)); });
  if (manifest.work.size() != manifest.ops.size())
    work.fail("one element for each of the " +
              std::to_string(manifest.ops.size()) + " ops");
  for (const TargetInfo &target : manifest.targets)
    if (!target.opKernels.empty() &&
        target.opKernels.size() != manifest.ops.size())
      root.at("targets").fail("op_kernels with one element for each of the " +
                              std::to_string(manifest.ops.size()) + " ops");
  root.at("tensors").forEach([&](const Value &value) {
    manifest.tensors.push_back(parseTensor(value, weightBytes));
  });
  manifest.generation = parseGeneration(root.at("generation"), manifest.model);
  return manifest;
}
