//===- ReferenceLogits.cpp - A checkpoint's logits in plain C++ -----------===//
//
// reference-logits CHECKPOINT WEIGHTS KV IDS OUT [NAME=FORMAT]...
// reference-logits CHECKPOINT values OUT
//
// Reads config.json and model*.safetensors itself, or a GGUF file, or weights
// in a form of lib/Weights, runs ReferenceModel.h and writes the logits of all
// positions as f32. NAME is a matrix with another format than WEIGHTS, which
// may be "keep". "values" writes the values of all weights as safetensors.
// test/Integration/random_models.py, gguf_files.py and forms.py compare them.
//
//===----------------------------------------------------------------------===//

#include "ReferenceModel.h"
#include "Safetensors.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <sstream>

using namespace qwen;
using nlohmann::json;
using namespace qwen::test;

namespace {
/// Reads a model from a folder or a GGUF file.
class ModelReader {
public:
  /// Matrices get the format `weights`, or that of their stored type, but those
  /// that `others` names.
  ModelReader(const std::string &path, std::optional<WeightFormat> weights,
              std::map<std::string, WeightFormat> others)
      : format(weights), formats(std::move(others)) {
    if (std::filesystem::is_directory(path))
      readFolder(path);
    else
      readGguf(path);
    heads = config.at("num_attention_heads");
    hidden = config.at("hidden_size");
    headDim = config.value("head_dim", hidden / heads);
  }

  ReferenceModel read(KvFormat cache) const {
    const int64_t vocab = config.at("vocab_size");
    ReferenceModel model = {
        config.at("num_key_value_heads"),
        headDim,
        static_cast<float>(config.at("rms_norm_eps").get<double>()),
        cache,
        {},
        norm(prefix + "norm.weight"),
        matrix(prefix + "embed_tokens", vocab, hidden),
        {},
        {}};
    readRope(model);
    if (!config.at("tie_word_embeddings").get<bool>())
      model.head = matrix("lm_head", vocab, hidden);
    for (int64_t i = 0; i < config.at("num_hidden_layers"); ++i)
      model.layers.push_back(layer(i));
    return model;
  }

private:
  void readFolder(const std::string &folder) {
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      if (const std::string name = entry.path().filename();
          name.starts_with("model") && name.ends_with(".safetensors"))
        files.emplace_back(entry.path());
    std::ifstream text(folder + "/config.json");
    config = nlohmann::json::parse(text);
    if (config.contains("quantization_config") ||
        config.contains("quantization")) {
      forms = openCheckpoint(folder);
      forms->orderColumns();
    }
    if (config.contains("text_config")) {
      prefix = "model.language_model.";
      config = nlohmann::json(config.at("text_config"));
    }
    isHybrid = config.at("model_type") == "qwen3_5_text";
  }

  void readGguf(const std::string &path) {
    gguf = openCheckpoint(path);
    const ModelConfig &model = gguf->config();
    isHybrid = layersOf(model.architecture).hasLinear;
    config = {{"model_type", infoOf(model.architecture).ggufName},
              {"vocab_size", model.vocabSize},
              {"hidden_size", model.hiddenSize},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.kvHeads},
              {"head_dim", model.headDim},
              {"intermediate_size", model.intermediateSize},
              {"rope_theta", model.ropeTheta},
              {"partial_rotary_factor", static_cast<double>(model.rotatedDim) /
                                            static_cast<double>(model.headDim)},
              {"rms_norm_eps", model.rmsNormEps},
              {"tie_word_embeddings", model.tied}};
    for (const LayerKind &kind : model.layerKinds) {
      const auto *linear = std::get_if<LinearAttention>(&kind);
      config["layer_types"].push_back(linear ? "linear_attention"
                                             : "full_attention");
      if (linear)
        config.update({{"linear_num_key_heads", linear->keyHeads},
                       {"linear_key_head_dim", linear->keyDim},
                       {"linear_num_value_heads", linear->valueHeads},
                       {"linear_value_head_dim", linear->valueDim}});
    }
    if (const ExpertsShape *experts = model.experts())
      config.update({{"num_experts", experts->count},
                     {"num_experts_per_tok", experts->active},
                     {"moe_intermediate_size", experts->width},
                     {"shared_expert_intermediate_size", experts->sharedWidth},
                     {"norm_topk_prob", experts->normalized}});
    if (model.yarn)
      config["rope_scaling"] = {
          {"type", "yarn"},
          {"factor", model.yarn->factor},
          {"original_max_position_embeddings", model.yarn->positions},
          {"beta_fast", model.yarn->fast},
          {"beta_slow", model.yarn->slow},
          {"attention_factor", model.ropeScale}};
  }

  /// A tensor of the GGUF file, or the outputs of one that holds q, k and v.
  StoredTensor stored(const std::string &name) const {
    const StoredTensors &tensors = gguf->tensors();
    if (const StoredTensor *found = tensors.find(name))
      return *found;
    const int64_t kv =
        config.at("num_key_value_heads").get<int64_t>() * headDim;
    int64_t first = 0;
    for (const auto &[part, outputs] :
         {std::pair("q_proj", heads * headDim), std::pair("k_proj", kv),
          std::pair("v_proj", kv)}) {
      if (name.find(part) != name.npos) {
        const size_t number = prefix.size() + std::string("layers.").size();
        const StoredTensor *fused = tensors.find(
            "blk." + name.substr(number, name.find('.', number) - number) +
            ".attn_qkv" + name.substr(name.rfind('.')));
        if (!fused)
          break;
        StoredTensor result = *fused;
        const auto bytes = std::ssize(fused->bytes) / fused->shape.front();
        result.shape.front() = outputs;
        result.bytes = fused->bytes.subspan(first * bytes, outputs * bytes);
        return result;
      }
      first += outputs;
    }
    throw Error("no GGUF file has tensor " + name);
  }

  /// YaRN's parameters in rope_parameters or in rope_scaling, or null.
  json yarnParameters() const {
    for (const char *key : {"rope_parameters", "rope_scaling"}) {
      const json rope = config.value(key, json());
      if (rope.is_object() &&
          rope.value("rope_type", rope.value("type", "")) == "yarn")
        return rope;
    }
    return nullptr;
  }

  void readRope(ReferenceModel &model) const {
    const json parameters = config.value("rope_parameters", config);
    const double theta = parameters.at("rope_theta");
    const double part = parameters.value(
        "partial_rotary_factor", config.value("partial_rotary_factor", 1.0));
    const auto rotated =
        static_cast<int64_t>(static_cast<double>(headDim) * part);
    const json rope = yarnParameters();
    numerics::Yarn yarn{};
    if (!rope.is_null()) {
      yarn.factor = rope.at("factor");
      yarn.positions = rope.at("original_max_position_embeddings");
      yarn.fast = rope.value("beta_fast", yarn.fast);
      yarn.slow = rope.value("beta_slow", yarn.slow);
      model.ropeScale = static_cast<float>(rope.value(
          "attention_factor", numerics::yarnAttentionFactor(yarn.factor)));
    }
    for (int64_t i = 0; i < rotated / 2; ++i)
      model.frequencies.push_back(
          rope.is_null() ? numerics::ropeInvFreq(theta, i, rotated)
                         : numerics::yarnInvFreq(theta, i, rotated, yarn));
  }

  ReferenceLayer layer(int64_t number) const {
    const std::string path = prefix + "layers." + std::to_string(number) + ".";
    ReferenceLayer result;
    if (isHybrid && config.at("layer_types").at(static_cast<size_t>(number)) ==
                        "linear_attention")
      readDeltaRule(path + "linear_attn.", result);
    else
      readAttention(path + "self_attn.", result);
    result.inputNorm = norm(path + "input_layernorm.weight");
    result.postNorm = norm(path + "post_attention_layernorm.weight");
    if (hasExperts(number)) {
      result.experts = experts(path + "mlp.");
      return result;
    }
    const int64_t ffn = config.at("intermediate_size");
    result.gate = matrix(path + "mlp.gate_proj", ffn, hidden);
    result.up = matrix(path + "mlp.up_proj", ffn, hidden);
    result.down = matrix(path + "mlp.down_proj", hidden, ffn);
    return result;
  }

  bool hasExperts(int64_t layer) const {
    if (!config.contains("num_experts_per_tok"))
      return false;
    const auto dense = config.value("mlp_only_layers", std::vector<int64_t>());
    return (layer + 1) % config.value("decoder_sparse_step", 1) == 0 &&
           std::ranges::find(dense, layer) == dense.end();
  }

  /// The router keeps its precision.
  ReferenceExperts experts(const std::string &path) const {
    const int64_t count =
        config.value("num_experts", config.value("num_local_experts", 0));
    ReferenceExperts result = {
        Matrix(WeightFormat::F32, count, hidden, vector(path + "gate.weight")),
        config.at("num_experts_per_tok"),
        config.value("norm_topk_prob", false)};
    const int64_t width = config.at("moe_intermediate_size");
    for (int64_t i = 0; i < count; ++i) {
      // Those of all experts have one format.
      const auto read = [&](const std::string &name, int64_t n, int64_t k) {
        std::string all = path, one = path;
        all.append("experts.").append(name).append(".weight");
        if (gguf) {
          const StoredTensor found = stored(all);
          return Matrix(formatOfMatrix(all, *found.type), n, k, *found.type,
                        found.bytes.data() +
                            storedBytes(*found.type, i * n * k));
        }
        one.append("experts.").append(std::to_string(i)).append(".");
        return Matrix(formatOfMatrix(all, StoredType::F32), n, k,
                      vector(one.append(name).append(".weight")));
      };
      result.experts.push_back({read("gate_proj", width, hidden),
                                read("up_proj", width, hidden),
                                read("down_proj", hidden, width)});
    }
    const std::string shared = path + "shared_expert";
    if (const int64_t n = config.value("shared_expert_intermediate_size", 0)) {
      result.shared = {matrix(shared + ".gate_proj", n, hidden),
                       matrix(shared + ".up_proj", n, hidden),
                       matrix(shared + ".down_proj", hidden, n)};
      result.sharedGate = {WeightFormat::F32, 1, hidden,
                           vector(shared + "_gate.weight")};
    }
    return result;
  }

  void readAttention(const std::string &path, ReferenceLayer &layer) const {
    const int64_t q = heads * headDim,
                  k = config.at("num_key_value_heads").get<int64_t>() * headDim;
    if (config.at("model_type").get<std::string>().starts_with("qwen2")) {
      layer.qBias = vector(path + "q_proj.bias");
      layer.kBias = vector(path + "k_proj.bias");
      layer.vBias = vector(path + "v_proj.bias");
    } else {
      layer.qNorm = norm(path + "q_norm.weight");
      layer.kNorm = norm(path + "k_norm.weight");
    }
    if (isHybrid) {
      layer.q = outputs(path + "q_proj", q, 0);
      layer.attentionGate = outputs(path + "q_proj", q, headDim);
    } else {
      layer.q = matrix(path + "q_proj", q, hidden);
    }
    layer.k = matrix(path + "k_proj", k, hidden);
    layer.v = matrix(path + "v_proj", k, hidden);
    layer.o = matrix(path + "o_proj", hidden, q);
  }

  void readDeltaRule(const std::string &path, ReferenceLayer &layer) const {
    ReferenceDeltaRule delta = {config.at("linear_num_key_heads"),
                                config.at("linear_key_head_dim"),
                                config.at("linear_num_value_heads"),
                                config.at("linear_value_head_dim"), 1};
    // Most GGUF files have the first value head of each key head first.
    if (!gguf || !gguf->config().interleavesValueHeads)
      delta.sharing = delta.valueHeads / delta.keyHeads;
    const int64_t keys = delta.keyHeads * delta.keyDim,
                  values = delta.valueHeads * delta.valueDim;
    delta.qkv = matrix(path + "in_proj_qkv", 2 * keys + values, hidden);
    delta.z = matrix(path + "in_proj_z", values, hidden);
    // These keep their precision. One tensor may have those of both, b before a
    // for each key head.
    const std::string joined = path + "in_proj_ba.weight";
    const bool isJoined = gguf && gguf->tensors().find(joined);
    const auto exact = [&](const char *name, int64_t place) {
      Values values = vector(isJoined ? joined : path + name);
      if (isJoined) {
        const Values both = std::move(values);
        const int64_t part = delta.sharing * hidden;
        values.clear();
        for (int64_t i = 0; i < delta.keyHeads; ++i)
          values.insert(values.end(), both.begin() + (2 * i + place) * part,
                        both.begin() + (2 * i + place + 1) * part);
      }
      return Matrix(WeightFormat::F32, delta.valueHeads, hidden, values);
    };
    delta.a = exact("in_proj_a.weight", 1);
    delta.b = exact("in_proj_b.weight", 0);
    delta.convolution = vector(path + "conv1d.weight");
    delta.rate = vector(path + "A_log");
    for (float &value : delta.rate)
      value = gguf ? -value : numerics::exp(value);
    delta.bias = vector(path + "dt_bias");
    delta.norm = vector(path + "norm.weight");
    layer.o = matrix(path + "out_proj", hidden, values);
    layer.delta = std::move(delta);
  }

  /// The weights of a norm. Those of hybrids in folders are differences from 1.
  Values norm(const std::string &name) const {
    Values values = vector(name);
    if (isHybrid && !gguf)
      for (float &value : values)
        value = 1 + value;
    return values;
  }

  /// The n outputs of q_proj with each head's queries (`first` 0) or gate.
  Matrix outputs(const std::string &path, int64_t n, int64_t first) const {
    StoredType type = StoredType::F32;
    const uint8_t *all = nullptr;
    Values values;
    if (gguf) {
      const StoredTensor tensor = stored(path + ".weight");
      type = *tensor.type;
      all = tensor.bytes.data();
    } else {
      values = vector(path + ".weight");
      all = reinterpret_cast<const uint8_t *>(values.data());
    }
    const int64_t bytes = storedBytes(type, hidden);
    std::vector<uint8_t> some;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t output = i / headDim * 2 * headDim + first + i % headDim;
      some.insert(some.end(), all + output * bytes, all + (output + 1) * bytes);
    }
    const std::string name = path + (first ? ".gate.weight" : ".weight");
    return {formatOfMatrix(name, type), n, hidden, type, some.data()};
  }

  /// A tensor of any type as f32.
  Values vector(const std::string &name) const {
    if (gguf) {
      const StoredTensor tensor = stored(name);
      int64_t count = 1;
      for (int64_t size : tensor.shape)
        count *= size;
      Values values(static_cast<size_t>(count));
      numerics::dequantize(*tensor.type, tensor.bytes.data(), count,
                           values.data());
      return values;
    }
    const auto file =
        std::ranges::find_if(files, [&](const Safetensors &candidate) {
          return candidate.tensors().contains(name);
        });
    if (file == files.end())
      throw Error("no file has tensor " + name);
    const std::string type = file->tensors().at(name).at("dtype");
    if (type == "F32")
      return file->get<float>(name);
    Values result;
    for (uint16_t bits : file->get<uint16_t>(name))
      result.push_back(type == "BF16" ? bf16ToF32(bits) : f16ToF32(bits));
    return result;
  }

  Matrix matrix(const std::string &path, int64_t n, int64_t k) const {
    const std::string name = path + ".weight";
    if (gguf) {
      const StoredTensor tensor = stored(name);
      return {formatOfMatrix(name, *tensor.type), n, k, *tensor.type,
              tensor.bytes.data()};
    }
    if (forms)
      return matrix(name);
    return {formatOfMatrix(name, StoredType::F32), n, k, vector(name)};
  }

  /// A matrix of a form of several tensors. Keeps the integers of an output
  /// where the format holds them.
  Matrix matrix(const std::string &name) const {
    const WeightSource &source = *forms->weights().find(name)->source;
    Matrix result;
    result.format = format ? *format : source.keptFormat();
    result.n = source.shape().outputs();
    result.k = source.shape().k();
    const int64_t bytes = panelBytes(result.format, result.k);
    for (int64_t first = 0; first < result.n; first += kPanelOutputs) {
      const int64_t count = std::min(kPanelOutputs, result.n - first);
      const OutputSet kept = source.kept(result.format, first, count);
      Values values(static_cast<size_t>(count * result.k));
      source.read(first, count, values.data());
      const float *outputs[kPanelOutputs] = {};
      for (int64_t i = 0; i < count; ++i)
        if ((kept >> i & 1) == 0)
          outputs[i] = values.data() + i * result.k;
      std::vector<uint8_t> panel(static_cast<size_t>(bytes));
      if (numerics::packPanel(result.format, outputs, result.k, panel.data()) !=
          numerics::EncodeStatus::Ok)
        throw Error("a matrix cannot be packed");
      if (kept != 0)
        source.keep(result.format, first, kept, 0, panel.data());
      result.panels.insert(result.panels.end(), panel.begin(), panel.end());
    }
    return result;
  }

  WeightFormat formatOfMatrix(const std::string &name, StoredType type) const {
    const auto other = formats.find(name);
    if (other != formats.end())
      return other->second;
    return format ? *format : infoOf(type).kept;
  }

  /// Of a folder.
  std::vector<Safetensors> files;
  /// None for a folder.
  std::unique_ptr<Checkpoint> gguf;
  /// Of a folder with a quantization configuration.
  std::unique_ptr<Checkpoint> forms;
  /// Of the names of tensors.
  std::string prefix = "model.";
  bool isHybrid;
  std::optional<WeightFormat> format;
  std::map<std::string, WeightFormat> formats;
  json config;
  int64_t heads, headDim, hidden;
};

WeightFormat formatOf(const std::string &name) {
  if (const auto format = parseWeightFormat(name))
    return *format;
  throw Error("format '" + name + "' when " + weightFormatList() +
              " is needed");
}

/// Writes the values of the weights of a checkpoint as the compiler reads them.
void writeValues(const std::string &path, const std::string &to) {
  const std::unique_ptr<Checkpoint> checkpoint = openCheckpoint(path);
  json header;
  Values all;
  for (const auto &[name, entry] : checkpoint->weights().all()) {
    const WeightShape &shape = entry.source->shape();
    const size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(shape.values()));
    entry.source->read(0, shape.outputs(), all.data() + begin);
    header[name] = {
        {"dtype", "F32"},
        {"shape", shape.sizes},
        {"data_offsets", {begin * sizeof(float), all.size() * sizeof(float)}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(to, std::ios::binary);
  out.write(reinterpret_cast<const char *>(&size), sizeof(size));
  out << text;
  out.write(reinterpret_cast<const char *>(all.data()),
            static_cast<std::streamsize>(all.size() * sizeof(float)));
  out.close();
  if (!out)
    throw Error("cannot write " + to);
}

void write(const std::vector<std::string> &arguments) {
  std::map<std::string, WeightFormat> others;
  for (const std::string &rule : std::span(arguments).subspan(5)) {
    const size_t split = rule.rfind('=');
    others[rule.substr(0, split)] = formatOf(rule.substr(split + 1));
  }
  std::optional<WeightFormat> weights;
  if (arguments[1] != "keep")
    weights = formatOf(arguments[1]);
  const ModelReader reader(arguments[0], weights, std::move(others));
  const ReferenceModel model = reader.read(parseKvFormat(arguments[2]).value());
  ReferenceSequence sequence(model);
  std::ofstream out(arguments[4], std::ios::binary);
  std::istringstream ids(arguments[3]);
  for (std::string id; std::getline(ids, id, ',');) {
    const Values logits = model.logits(sequence.next(std::stoi(id)));
    out.write(reinterpret_cast<const char *>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  out.close();
  if (!out)
    throw Error("cannot write " + arguments[4]);
}
} // namespace

int main(int argc, char **argv) {
  try {
    if (argc == 4 && argv[2] == std::string_view("values")) {
      writeValues(argv[1], argv[3]);
      return 0;
    }
    if (argc < 6)
      throw Error("usage: reference-logits CHECKPOINT WEIGHTS KV IDS OUT "
                  "[NAME=FORMAT]...");
    write({argv + 1, argv + argc});
  } catch (const std::exception &error) {
    fprintf(stderr, "reference-logits: %s\n", error.what());
    return 1;
  }
  return 0;
}
