//===- ReferenceReader.h - Reads checkpoints for ReferenceModel -*- C++ -*-===//
//
// Reads config.json and model*.safetensors itself, or a GGUF file, or weights
// in a form of lib/Weights.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_REFERENCEREADER_H
#define QWEN_TEST_UNIT_REFERENCEREADER_H

#include "ReferenceModel.h"
#include "Safetensors.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>

namespace qwen::test {

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
    ReferenceModel model = readBesideLayers(cache);
    model.finalNorm = norm(prefix + "norm.weight");
    for (int64_t i = 0; i < config.at("num_hidden_layers"); ++i)
      model.layers.push_back(layer(i));
    return model;
  }

  /// The draft head of a hybrid's folder.
  ReferenceDraftHead readDraftHead(KvFormat cache) const {
    const std::string path = "mtp.";
    ReferenceDraftHead head = {readBesideLayers(cache),
                               norm(path + "pre_fc_norm_embedding.weight"),
                               norm(path + "pre_fc_norm_hidden.weight"),
                               columns(path + "fc.", "embedding", 0),
                               columns(path + "fc.", "hidden", hidden)};
    head.model.finalNorm = norm(path + "norm.weight");
    ReferenceLayer layer;
    readAttention(path + "layers.0.self_attn.", layer);
    readFeedForward(path + "layers.0.", config.contains(kActiveExperts), layer);
    head.model.layers.push_back(std::move(layer));
    return head;
  }

private:
  static constexpr char kActiveExperts[] = "num_experts_per_tok";

  /// A model without layers and the norm behind them.
  ReferenceModel readBesideLayers(KvFormat cache) const {
    const int64_t vocab = config.at("vocab_size");
    ReferenceModel model = {
        config.at("num_key_value_heads"),
        headDim,
        static_cast<float>(config.at("rms_norm_eps").get<double>()),
        cache,
        {},
        {},
        matrix(prefix + "embed_tokens", vocab, hidden),
        {},
        {}};
    readRope(model);
    if (!config.at("tie_word_embeddings").get<bool>())
      model.head = matrix("lm_head", vocab, hidden);
    return model;
  }

  /// The columns from `first` on of the half of "fc.weight" that `name` reads.
  Matrix columns(const std::string &path, const char *name,
                 int64_t first) const {
    const Values all = vector(path + "weight");
    Values half;
    for (auto row = all.begin(); row != all.end(); row += 2 * hidden)
      half.insert(half.end(), row + first, row + first + hidden);
    return {formatOfMatrix(path + name + ".weight", StoredType::F32), hidden,
            hidden, half};
  }

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
    const std::string type = config.at("model_type");
    isHybrid = type.starts_with("qwen3_5") || type == "qwen3_next";
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
    if (const std::optional<ExpertsShape> &experts = model.experts)
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
          {"attention_factor", model.ropeScale()}};
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
  nlohmann::json yarnParameters() const {
    for (const char *key : {"rope_parameters", "rope_scaling"}) {
      const nlohmann::json rope = config.value(key, nlohmann::json());
      if (rope.is_object() &&
          rope.value("rope_type", rope.value("type", "")) == "yarn")
        return rope;
    }
    return nullptr;
  }

  void readRope(ReferenceModel &model) const {
    const nlohmann::json parameters = config.value("rope_parameters", config);
    const double theta = parameters.at("rope_theta");
    const double part = parameters.value(
        "partial_rotary_factor", config.value("partial_rotary_factor", 1.0));
    const auto rotated =
        static_cast<int64_t>(static_cast<double>(headDim) * part);
    const nlohmann::json rope = yarnParameters();
    Yarn yarn{};
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
    readFeedForward(path, hasExperts(number), result);
    return result;
  }

  /// Reads the norms of a layer, and what it computes of each token alone.
  void readFeedForward(const std::string &path, bool isOfExperts,
                       ReferenceLayer &layer) const {
    layer.inputNorm = norm(path + "input_layernorm.weight");
    layer.postNorm = norm(path + "post_attention_layernorm.weight");
    if (isOfExperts) {
      layer.experts = experts(path + "mlp.");
      return;
    }
    const int64_t ffn = config.at("intermediate_size");
    layer.gate = matrix(path + "mlp.gate_proj", ffn, hidden);
    layer.up = matrix(path + "mlp.up_proj", ffn, hidden);
    layer.down = matrix(path + "mlp.down_proj", hidden, ffn);
  }

  bool hasExperts(int64_t layer) const {
    if (!config.contains(kActiveExperts))
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
        config.at(kActiveExperts), config.value("norm_topk_prob", isHybrid)};
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
  nlohmann::json config;
  int64_t heads, headDim, hidden;
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_REFERENCEREADER_H
