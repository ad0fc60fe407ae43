//===- GgufModelFiles.h - Models in GGUF files for tests --------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_GGUFMODELFILES_H
#define QWEN_TEST_UNIT_GGUFMODELFILES_H

#include "GgufBytes.h"
#include "TempDir.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include <gtest/gtest.h>

namespace qwen::test {

/// The files of a model of one layer with 2 heads of 32 and 1 KV head.
inline GgufBytes makeModel(const std::string &architecture = "qwen3") {
  const std::string a = architecture + ".";
  GgufBytes file;
  file.keys = {string("general.architecture", architecture),
               string("general.type", "model"),
               u32(a + "block_count", 1),
               u32(a + "context_length", 256),
               u32(a + "embedding_length", 64),
               u32(a + "feed_forward_length", 96),
               u32(a + "attention.head_count", 2),
               u32(a + "attention.head_count_kv", 1),
               u32(a + "attention.key_length", 32),
               u32(a + "attention.value_length", 32),
               f32(a + "attention.layer_norm_rms_epsilon", 1e-6F),
               f32(a + "rope.freq_base", 1e6F)};
  file.tensors = {{"token_embd.weight", {64, 40}, StoredType::Q8_0},
                  {"blk.0.attn_q.weight", {64, 64}, StoredType::Q4_0},
                  {"blk.0.attn_norm.weight", {64}},
                  {"odd", {1}}};
  return file;
}

/// Puts the key `with` in the place of the key `name`.
inline void replaceKey(GgufBytes &file, const std::string &name,
                       const std::string &with) {
  std::erase_if(file.keys, [&](const std::string &key) {
    return key.starts_with(text(name));
  });
  file.keys.push_back(with);
}

/// The files of a Qwen3.5 of one layer, of linear attention, and a draft layer.
inline GgufBytes makeHybrid() {
  GgufBytes file = makeModel("qwen35");
  replaceKey(file, "qwen35.block_count", u32("qwen35.block_count", 2));
  for (const auto &[key, value] :
       {std::pair("nextn_predict_layers", 1), std::pair("ssm.conv_kernel", 4),
        std::pair("ssm.state_size", 64), std::pair("ssm.group_count", 2),
        std::pair("ssm.time_step_rank", 6), std::pair("ssm.inner_size", 192),
        std::pair("rope.dimension_count", 8)})
    file.keys.push_back(
        u32("qwen35." + std::string(key), static_cast<uint32_t>(value)));
  file.tensors.push_back({"blk.0.ssm_out.weight", {192, 64}});
  file.tensors.push_back({"blk.0.ssm_a", {6}});
  return file;
}

class GgufModel : public testing::Test {
protected:
  /// Writes the file and opens it.
  std::unique_ptr<Checkpoint> open(const GgufBytes &file) {
    dir.write("m.gguf", file.make());
    return openCheckpoint(dir.path() / "m.gguf");
  }

  /// The error about `file` without its path.
  std::string errorOf(const GgufBytes &file) {
    std::string message = messageOf([&] { open(file); });
    const std::string path = dir.string() + "/m.gguf";
    if (message.starts_with(path))
      message.erase(0, path.size());
    return message;
  }

  /// The error about a model in which `with` is the key of that name.
  std::string errorWith(const std::string &name, const std::string &with) {
    GgufBytes file = makeModel();
    replaceKey(file, name, with);
    return errorOf(file);
  }

  const TempDir dir;
};

inline std::string u32s(const std::string &name,
                        const std::vector<uint32_t> &values) {
  std::string bytes;
  for (uint32_t value : values)
    bytes += raw(value);
  return array(name, GgufType::U32, values.size(), bytes);
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_GGUFMODELFILES_H
