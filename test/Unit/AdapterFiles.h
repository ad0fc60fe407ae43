//===- AdapterFiles.h - Adapters for tests ----------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_ADAPTERFILES_H
#define QWEN_TEST_UNIT_ADAPTERFILES_H

#include "qwen/Import/Adapters/Adapters.h"

#include "GgufBytes.h"
#include "NumericsRandom.h"
#include "Safetensors.h"
#include "TempDir.h"

#include <nlohmann/json.hpp>

namespace qwen::test {

inline std::filesystem::path inputs() {
  return std::filesystem::path(QWEN_SOURCE_DIR) / "test/Inputs";
}
inline std::filesystem::path base(const std::string &model) {
  return inputs() / "checkpoints" / ("base-" + model);
}

/// A checkpoint with adapters.
struct Adapted {
  std::vector<StoredTensors> files;
  std::unique_ptr<Checkpoint> checkpoint;

  Adapted(const std::filesystem::path &path,
          const std::vector<AdapterOption> &adapters)
      : checkpoint(openCheckpoint(
            path, [&](ModelConfig &model, WeightSources &weights) {
              for (const AdapterOption &adapter : adapters)
                files.push_back(mergeAdapter(adapter, model, weights));
            })) {}

  WeightSourcePtr source(const std::string &name) const {
    const WeightSources::Entry *entry = checkpoint->weights().find(name);
    return entry ? entry->source : nullptr;
  }
  std::vector<float> values(const std::string &name) const {
    const WeightSourcePtr from = source(name);
    std::vector<float> result(static_cast<size_t>(from->shape().values()));
    from->read(0, from->shape().outputs(), result.data());
    return result;
  }
};

/// Values in f32 with their shape.
struct Values {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Values>;

/// A PEFT adapter of some modules, to be changed before it is written.
struct PeftFiles {
  nlohmann::json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}};
  Tensors tensors;
};

inline Values random(std::vector<int64_t> shape, uint32_t seed) {
  const size_t count = static_cast<size_t>(WeightShape{shape}.values());
  return {std::move(shape), Random(seed).values(count)};
}

inline Values transposed(const Values &from) {
  const int64_t rows = from.shape[0], columns = from.shape[1];
  Values to = {{columns, rows}, from.values};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to.values[static_cast<size_t>(j * rows + i)] =
          from.values[static_cast<size_t>(i * columns + j)];
  return to;
}

inline void writeTensors(const TempDir &dir, const std::string &name,
                         const Tensors &tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto &[tensor, values] : tensors) {
    const size_t begin = data.size();
    for (float value : values.values)
      data += raw(value);
    header[tensor] = {{"dtype", "F32"},
                      {"shape", values.shape},
                      {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  dir.write(name, raw(uint64_t{text.size()}) + text + data);
}

inline void write(const TempDir &dir, const PeftFiles &adapter) {
  dir.write("adapter_config.json", adapter.config.dump());
  writeTensors(dir, "adapter_model.safetensors", adapter.tensors);
}

/// The names of a tensor of q_proj in the model and in PEFT.
inline std::string query(const std::string &suffix) {
  return "model.layers.0.self_attn.q_proj" + suffix;
}
inline std::string peftQuery(const std::string &suffix) {
  return "base_model.model." + query(suffix);
}

/// An adapter of q_proj of base-qwen2.
inline PeftFiles queries() {
  PeftFiles adapter;
  adapter.tensors = {{peftQuery(".lora_A.weight"), random({2, 256}, 1)},
                     {peftQuery(".lora_B.weight"), random({256, 2}, 2)}};
  return adapter;
}

/// The error about an adapter of base-`model`, with "DIR" in place of its
/// folder.
inline std::string errorOf(const PeftFiles &adapter,
                           const std::string &model = "qwen2") {
  TempDir dir;
  write(dir, adapter);
  std::string message =
      messageOf([&] { Adapted(base(model), {{dir.path()}}); });
  for (size_t at; (at = message.find(dir.string())) != message.npos;)
    message.replace(at, dir.string().size(), "DIR");
  return message;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_ADAPTERFILES_H
