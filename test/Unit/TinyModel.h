//===- TinyModel.h - A checkpoint of one layer ------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_TINYMODEL_H
#define QWEN_TEST_UNIT_TINYMODEL_H

#include "qwen/Import/Models/Import.h"

#include "TempDir.h"

#include "mlir/IR/MLIRContext.h"

#include <nlohmann/json.hpp>

namespace qwen::test {

/// A tensor of a checkpoint without its bytes.
struct ModelTensor {
  std::vector<int64_t> shape;
  const char *dtype = "F32";
};

/// A model of one layer, to be changed before it is written.
struct TinyModel {
  nlohmann::json config;
  std::map<std::string, ModelTensor> tensors;

  /// Writes both files. The bytes of the tensors are a hole in the file.
  void write(const TempDir &dir) const {
    dir.write("config.json", config.dump());
    nlohmann::json header = nlohmann::json::object();
    uint64_t end = 0;
    for (const auto &[name, tensor] : tensors) {
      const uint64_t begin = end;
      uint64_t bytes = std::string_view(tensor.dtype) == "F32" ? 4 : 2;
      for (int64_t size : tensor.shape)
        bytes *= static_cast<uint64_t>(size);
      end += bytes;
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {begin, end}}};
    }
    const std::string text = header.dump();
    std::string length;
    for (int i = 0; i < 8; ++i)
      length += static_cast<char>(text.size() >> (8 * i));
    dir.write("model.safetensors", length + text);
    std::filesystem::resize_file(dir.path() / "model.safetensors",
                                 8 + text.size() + end);
  }
};

inline TinyModel makeTinyModel(const char *architecture) {
  TinyModel model;
  model.config = {{"architectures", {architecture}},
                  {"head_dim", 16},
                  {"hidden_act", "silu"},
                  {"hidden_size", 64},
                  {"intermediate_size", 96},
                  {"max_position_embeddings", 128},
                  {"num_attention_heads", 6},
                  {"num_hidden_layers", 1},
                  {"num_key_value_heads", 2},
                  {"rms_norm_eps", 0.5},
                  {"rope_theta", 10000.0},
                  {"tie_word_embeddings", false},
                  {"vocab_size", 200}};
  const std::string layer = "model.layers.0.";
  model.tensors = {{"model.embed_tokens.weight", {{200, 64}, "BF16"}},
                   {layer + "input_layernorm.weight", {{64}}},
                   {layer + "self_attn.q_proj.weight", {{96, 64}, "F16"}},
                   {layer + "self_attn.k_proj.weight", {{32, 64}}},
                   {layer + "self_attn.v_proj.weight", {{32, 64}}},
                   {layer + "self_attn.o_proj.weight", {{64, 96}}},
                   {layer + "post_attention_layernorm.weight", {{64}}},
                   {layer + "mlp.gate_proj.weight", {{96, 64}}},
                   {layer + "mlp.up_proj.weight", {{96, 64}}},
                   {layer + "mlp.down_proj.weight", {{64, 96}}},
                   {"model.norm.weight", {{64}}},
                   {"lm_head.weight", {{200, 64}}}};
  if (architecture == infoOf(Architecture::Qwen2).name) {
    model.tensors[layer + "self_attn.q_proj.bias"] = {{96}};
    model.tensors[layer + "self_attn.k_proj.bias"] = {{32}};
    model.tensors[layer + "self_attn.v_proj.bias"] = {{32}};
  } else {
    model.tensors[layer + "self_attn.q_norm.weight"] = {{16}};
    model.tensors[layer + "self_attn.k_norm.weight"] = {{16}};
  }
  return model;
}

inline TinyModel tinyQwen2() { return makeTinyModel("Qwen2ForCausalLM"); }
inline TinyModel tinyQwen3() { return makeTinyModel("Qwen3ForCausalLM"); }

/// The error about `model`, with "DIR" in place of the folder.
inline std::string errorOf(const TinyModel &model) {
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  std::string message =
      messageOf([&] { importCheckpoint(dir.path(), context); });
  if (const size_t at = message.find(dir.string()); at != message.npos)
    message.replace(at, dir.string().size(), "DIR");
  return message;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_TINYMODEL_H
