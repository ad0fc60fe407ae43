//===- AdaptersTest.cpp - Adapters that are merged into a model -----------===//

#include "qwen/Import/Adapters/Adapters.h"

#include "GgufBytes.h"
#include "NumericsRandom.h"
#include "Safetensors.h"
#include "TempDir.h"
#include "qwen/Weights/Owned.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;
namespace fs = std::filesystem;

static fs::path inputs() { return fs::path(QWEN_SOURCE_DIR) / "test/Inputs"; }
static fs::path base(const std::string &model) {
  return inputs() / "checkpoints" / ("base-" + model);
}

namespace {
/// A checkpoint with adapters.
struct Adapted {
  std::vector<StoredTensors> files;
  std::unique_ptr<Checkpoint> checkpoint;

  Adapted(const fs::path &path, const std::vector<AdapterOption> &adapters)
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
  json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}};
  Tensors tensors;
};
} // namespace

static Values random(std::vector<int64_t> shape, uint32_t seed) {
  const size_t count = static_cast<size_t>(WeightShape{shape}.values());
  return {std::move(shape), Random(seed).values(count)};
}

static Values transposed(const Values &from) {
  const int64_t rows = from.shape[0], columns = from.shape[1];
  Values to = {{columns, rows}, from.values};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to.values[static_cast<size_t>(j * rows + i)] =
          from.values[static_cast<size_t>(i * columns + j)];
  return to;
}

static void writeTensors(const TempDir &dir, const std::string &name,
                         const Tensors &tensors) {
  json header = json::object();
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

static void write(const TempDir &dir, const PeftFiles &adapter) {
  dir.write("adapter_config.json", adapter.config.dump());
  writeTensors(dir, "adapter_model.safetensors", adapter.tensors);
}

/// The names of a tensor of q_proj in the model and in PEFT.
static std::string query(const std::string &suffix) {
  return "model.layers.0.self_attn.q_proj" + suffix;
}
static std::string peftQuery(const std::string &suffix) {
  return "base_model.model." + query(suffix);
}

/// An adapter of q_proj of base-qwen2.
static PeftFiles queries() {
  PeftFiles adapter;
  adapter.tensors = {{peftQuery(".lora_A.weight"), random({2, 256}, 1)},
                     {peftQuery(".lora_B.weight"), random({256, 2}, 2)}};
  return adapter;
}

/// The error about an adapter of base-`model`, with "DIR" in place of its
/// folder.
static std::string errorOf(const PeftFiles &adapter,
                           const std::string &model = "qwen2") {
  TempDir dir;
  write(dir, adapter);
  std::string message =
      messageOf([&] { Adapted(base(model), {{dir.path()}}); });
  for (size_t at; (at = message.find(dir.string())) != message.npos;)
    message.replace(at, dir.string().size(), "DIR");
  return message;
}

/// Golden rows: within 1e-6 of the tensor's largest magnitude.
TEST(Adapters, GiveTheRowsOfPeft) {
  for (const char *name :
       {"lora-qwen2-plain", "lora-qwen2-patterns", "lora-qwen2-embedding",
        "lora-qwen2-lora_bias", "lora-qwen2-gguf", "lora-qwen3-dora",
        "lora-qwen3-rslora", "lora-qwen3-on-gptq", "qalora-qwen3-paper",
        "qalora-qwen3-peft"}) {
    fs::path path = inputs() / "adapters" / name, model = base("qwen2");
    if (std::ifstream config(path / "adapter_config.json"); config)
      model = path / json::parse(config)["base_model_name_or_path"];
    const Safetensors golden((path / "golden.safetensors").string());
    if (fs::exists(path / "adapter.gguf"))
      path /= "adapter.gguf";
    model = inputs() / "checkpoints" / model.filename();
    const Adapted adapted(model, {{path}});
    size_t compared = 0;
    for (const auto &[tensor, entry] : golden.tensors().items()) {
      if (!tensor.starts_with("rows/"))
        continue;
      const auto rows = golden.get<float>(tensor);
      const std::vector<float> found = adapted.values(tensor.substr(5));
      float most = 0;
      for (float value : found)
        most = std::max(most, std::abs(value));
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_NEAR(found[i], rows[i], 1e-6 * most) << name << tensor << i;
      ++compared;
    }
    EXPECT_GE(compared, 5u);
  }
}

TEST(Adapters, AddTheUpdateTimesTheScale) {
  TempDir dir;
  const PeftFiles adapter = queries();
  write(dir, adapter);
  const Adapted plain(base("qwen2"), {});
  const Adapted model(base("qwen2"), {{dir.path(), 0.5}});
  const std::string weight = query(".weight");
  const std::vector<float> before = plain.values(weight),
                           after = model.values(weight);
  const auto &a = adapter.tensors.at(peftQuery(".lora_A.weight")).values,
             &b = adapter.tensors.at(peftQuery(".lora_B.weight")).values;
  for (size_t i = 0; i < 256; ++i)
    for (size_t j = 0; j < 256; ++j) {
      double sum = 0;
      for (size_t r = 0; r < 2; ++r)
        sum += double{b[i * 2 + r]} * a[r * 256 + j];
      // alpha / r is 2.
      ASSERT_EQ(after[i * 256 + j],
                static_cast<float>(before[i * 256 + j] + 0.5 * 2 * sum));
    }
  EXPECT_EQ(model.source(weight)->form(), "BF16 + LoRA");
  EXPECT_EQ(model.source(weight)->keptFormat(), WeightFormat::F32);
  EXPECT_EQ(model.source(weight)->name().line(),
            plain.source(weight)->name().line());
  EXPECT_EQ(model.checkpoint->config().notes,
            (std::vector<std::string>{dir.string() +
                                      ", an adapter of PEFT, changes 1 "
                                      "weights, times 0.5"}));
  // One after another.
  const Adapted twice(base("qwen2"), {{dir.path(), 0.25}, {dir.path(), 0.25}});
  EXPECT_EQ(twice.source(weight)->form(), "BF16 + LoRA");
  const std::vector<float> stepwise = twice.values(weight);
  for (size_t i = 0; i < after.size(); ++i)
    ASSERT_NEAR(stepwise[i], after[i], 1e-5);
  // Others are as they were.
  EXPECT_EQ(plain.values("lm_head.weight"), model.values("lm_head.weight"));
}

TEST(Adapters, ReadWhatMlxWrites) {
  TempDir peft, mlx;
  PeftFiles adapter = queries();
  const std::string embedding = "base_model.model.model.embed_tokens";
  adapter.tensors[embedding + ".lora_embedding_A"] = random({2, 320}, 3);
  adapter.tensors[embedding + ".lora_embedding_B"] = random({256, 2}, 4);
  write(peft, adapter);
  const auto turned = [&](const std::string &name) {
    return transposed(adapter.tensors.at(name));
  };
  Tensors tensors = {
      {query(".lora_a"), turned(peftQuery(".lora_A.weight"))},
      {query(".lora_b"), turned(peftQuery(".lora_B.weight"))},
      {"model.embed_tokens.lora_a", turned(embedding + ".lora_embedding_A")},
      {"model.embed_tokens.lora_b", turned(embedding + ".lora_embedding_B")}};
  writeTensors(mlx, "adapters.safetensors", tensors);
  json config = {
      {"fine_tune_type", "lora"},
      {"num_layers", 1},
      {"lora_parameters", {{"rank", 2}, {"scale", 2.0}, {"dropout", 0.0}}}};
  mlx.write("adapter_config.json", config.dump());
  const Adapted one(base("qwen2"), {{peft.path()}}),
      other(base("qwen2"), {{mlx.path()}});
  for (const std::string &name :
       {query(".weight"), std::string("model.embed_tokens.weight")})
    EXPECT_EQ(one.values(name), other.values(name));

  // DoRA.
  const Values norms = {{256}, Random(5).values(256)};
  for (const char *name :
       {"model.embed_tokens.lora_a", "model.embed_tokens.lora_b"})
    tensors.erase(name);
  adapter.tensors.erase(embedding + ".lora_embedding_A");
  adapter.tensors.erase(embedding + ".lora_embedding_B");
  tensors[query(".m")] = norms;
  adapter.tensors[peftQuery(".lora_magnitude_vector")] = norms;
  adapter.config["use_dora"] = true;
  config["fine_tune_type"] = "dora";
  write(peft, adapter);
  writeTensors(mlx, "adapters.safetensors", tensors);
  mlx.write("adapter_config.json", config.dump());
  EXPECT_EQ(Adapted(base("qwen2"), {{peft.path()}}).values(query(".weight")),
            Adapted(base("qwen2"), {{mlx.path()}}).values(query(".weight")));

  // Whole tensors.
  config["fine_tune_type"] = "full";
  mlx.write("adapter_config.json", config.dump());
  writeTensors(mlx, "adapters.safetensors", {{"model.norm.weight", norms}});
  EXPECT_EQ(Adapted(base("qwen2"), {{mlx.path()}}).values("model.norm.weight"),
            norms.values);

  const auto errorWith = [&](const json &parameters) {
    config["fine_tune_type"] = "lora";
    config["lora_parameters"] = parameters;
    mlx.write("adapter_config.json", config.dump());
    writeTensors(mlx, "adapters.safetensors", tensors);
    const std::string message =
        messageOf([&] { Adapted(base("qwen2"), {{mlx.path()}}); });
    return message.substr(std::min(message.size(), mlx.string().size()));
  };
  EXPECT_EQ(errorWith({{"rank", 2}, {"scale", 1}, {"alpha", 16}}),
            "/adapter_config.json: lora_parameters.alpha 16 is not supported; "
            "supported is null");
  EXPECT_EQ(errorWith({{"rank", 4}, {"scale", 1}}),
            "/adapter_config.json: lora_parameters.rank is 4 when the tensors "
            "of \"model.layers.0.self_attn.q_proj\" have 2");
}

TEST(Adapters, ReadTheEmbeddingOfGgufFiles) {
  TempDir peft, gguf;
  PeftFiles adapter;
  const std::string embedding = "base_model.model.model.embed_tokens";
  const Values left = random({2, 320}, 3), right = random({256, 2}, 4);
  adapter.tensors = {{embedding + ".lora_embedding_A", left},
                     {embedding + ".lora_embedding_B", right}};
  write(peft, adapter);
  GgufBytes file;
  file.keys = {string("general.type", "adapter"),
               string("general.architecture", "qwen2"),
               string("adapter.type", "lora"), f32("adapter.lora.alpha", 4)};
  file.tensors = {{"token_embd.weight.lora_a", {2, 320}},
                  {"token_embd.weight.lora_b", {2, 256}}};
  std::string bytes = file.make();
  std::string data;
  for (const Values &values : {transposed(left), right})
    for (float value : values.values)
      data += raw(value);
  bytes.replace(bytes.size() - data.size(), data.size(), data);
  gguf.write("a.gguf", bytes);
  const std::string name = "model.embed_tokens.weight";
  EXPECT_EQ(Adapted(base("qwen2"), {{gguf.path() / "a.gguf"}}).values(name),
            Adapted(base("qwen2"), {{peft.path()}}).values(name));

  const auto errorWith = [&](size_t i, const std::string &key) {
    GgufBytes other = file;
    if (i < other.keys.size())
      other.keys[i] = key;
    else
      other.keys.push_back(key);
    gguf.write("b.gguf", other.make());
    const fs::path path = gguf.path() / "b.gguf";
    const std::string message =
        messageOf([&] { Adapted(base("qwen2"), {{path}}); });
    return message.substr(std::min(message.size(), path.string().size()));
  };
  EXPECT_EQ(errorWith(0, string("general.type", "model")),
            ": general.type \"model\" is not supported; supported is "
            "\"adapter\"");
  EXPECT_EQ(errorWith(1, string("general.architecture", "qwen3")),
            ": general.architecture \"qwen3\" is not supported; supported is "
            "\"qwen2\"");
  EXPECT_EQ(errorWith(4, array("adapter.alora.invocation_tokens", GgufType::U32,
                               1, raw(1U))),
            ": adapter.alora.invocation_tokens an array is not supported; "
            "supported is null");
  file.tensors[0].name = "output_norm.weight";
  EXPECT_EQ(errorWith(4, u32("general.file_type", 0)),
            ": tensor \"output_norm.weight\" is not a lora_a or a lora_b");
  file.tensors[0] = {"token_embd.weight.lora_a", {32, 320}, StoredType::Q8_0};
  file.tensors[1].dimensions[0] = 32;
  EXPECT_EQ(errorWith(4, u32("general.file_type", 0)),
            ": tensor \"token_embd.weight.lora_a\" has type Q8_0 when F32, F16 "
            "or BF16 is needed");
}

TEST(Adapters, TakeTheFirstPatternThatMatches) {
  TempDir dir;
  const PeftFiles adapter = queries();
  const auto valueWith = [&](const std::string &patterns) {
    write(dir, adapter);
    // In another order than that of the alphabet.
    dir.write("adapter_config.json",
              R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4)" + patterns +
                  "}");
    return Adapted(base("qwen2"), {{dir.path()}}).values(query(".weight"));
  };
  const auto with = [&](double alpha) {
    PeftFiles other = adapter;
    other.config["lora_alpha"] = alpha;
    write(dir, other);
    return Adapted(base("qwen2"), {{dir.path()}}).values(query(".weight"));
  };
  EXPECT_EQ(valueWith(R"(, "alpha_pattern": {"q_proj": 8, ".*q_proj": 2})"),
            with(8));
  EXPECT_EQ(valueWith(R"(, "alpha_pattern": {"self_attn.[qv]_proj": 8})"),
            with(8));
  // Neither a part of a name nor its start.
  EXPECT_EQ(valueWith(R"(, "alpha_pattern": {"_proj": 8, "model": 8})"),
            with(4));
  EXPECT_EQ(valueWith(R"(, "rank_pattern": {"((.*)*)*x": 4})"), with(4));
  EXPECT_EQ(valueWith(R"(, "use_rslora": true)"), with(4 * std::sqrt(2.0)));
}

TEST(Adapters, AddUpdatesOfBiases) {
  TempDir dir;
  PeftFiles adapter = queries();
  adapter.tensors[peftQuery(".lora_B.bias")] = random({256}, 3);
  write(dir, adapter);
  const std::string name = query(".bias");
  const std::vector<float> before = Adapted(base("qwen2"), {}).values(name),
                           after = Adapted(base("qwen2"), {{dir.path()}})
                                       .values(name);
  const auto &added = adapter.tensors.at(peftQuery(".lora_B.bias")).values;
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_EQ(after[i], static_cast<float>(before[i] + 2.0 * added[i]));
}

TEST(Adapters, UntieTheHeadOnly) {
  TempDir dir;
  PeftFiles adapter;
  adapter.tensors = {
      {"base_model.model.lm_head.lora_A.weight", random({2, 256}, 1)},
      {"base_model.model.lm_head.lora_B.weight", random({320, 2}, 2)}};
  write(dir, adapter);
  const Adapted model(base("qwen3"), {{dir.path()}});
  EXPECT_FALSE(model.checkpoint->config().tied);
  EXPECT_NE(model.values("lm_head.weight"),
            model.values("model.embed_tokens.weight"));
  EXPECT_EQ(model.values("model.embed_tokens.weight"),
            Adapted(base("qwen3"), {}).values("model.embed_tokens.weight"));

  adapter.tensors = {
      {"base_model.model.model.embed_tokens.weight", random({320, 256}, 1)}};
  EXPECT_EQ(errorOf(adapter, "qwen3"),
            (base("qwen3") / "model.safetensors").string() +
                ": tensor \"model.embed_tokens.weight\" is the lm_head of a "
                "tied model, too; an adapter that changes it is not supported "
                "unless it changes lm_head as well");
  EXPECT_EQ(errorOf(adapter), "");
}

/// Only changed matrices lose their integers; they keep the format.
TEST(Adapters, KeepOtherIntegers) {
  TempDir dir;
  const fs::path file = inputs() / "gguf/qwen3-q4_k_m/model.gguf";
  const Adapted plain(file, {});
  const WeightShape shape = plain.source(query(".weight"))->shape();
  PeftFiles adapter;
  adapter.tensors = {
      {peftQuery(".lora_A.weight"), random({2, shape.k()}, 1)},
      {peftQuery(".lora_B.weight"), random({shape.outputs(), 2}, 2)},
      {"base_model.model.model.layers.0.self_attn.o_proj.weight",
       random(plain.source("model.layers.0.self_attn.o_proj.weight")
                  ->shape()
                  .sizes,
              3)}};
  write(dir, adapter);
  const Adapted model(file, {{dir.path()}});
  for (const auto &[name, entry] : plain.checkpoint->weights().all()) {
    const WeightFormat format = entry.source->keptFormat();
    const WeightSourcePtr found = model.source(name);
    const bool isChanged = name == query(".weight") ||
                           name.find("layers.0.self_attn.o_proj") != name.npos;
    EXPECT_EQ(found->keptFormat(), format) << name;
    EXPECT_EQ(found->hasIntegers(), !isChanged) << name;
    EXPECT_EQ(found->kept(format, 0, 1),
              isChanged ? 0u : entry.source->kept(format, 0, 1));
  }
  EXPECT_EQ(model.source(query(".weight"))->form(),
            std::string(plain.source(query(".weight"))->form()) + " + LoRA");
}

/// The values that the panels of `source` in `format` hold.
static std::vector<float> keptValues(const WeightSource &source,
                                     WeightFormat format,
                                     numerics::EncodeError &error) {
  const int64_t outputs = source.shape().outputs(), k = source.shape().k();
  Owned owned(source, Place::Memory, format);
  for (int64_t first = 0; first < outputs; first += kPanelOutputs) {
    const int64_t count = std::min(kPanelOutputs, outputs - first);
    const OutputSet all = (OutputSet{1} << count) - 1;
    EXPECT_EQ(source.kept(format, first, count), all);
    error += source.keep(format, first, all, 0,
                         owned.panels().data() +
                             first / kPanelOutputs * panelBytes(format, k));
  }
  std::vector<float> values(static_cast<size_t>(outputs * k));
  owned.read(0, outputs, values.data());
  return values;
}

/// All values of a group of the base get the same number: no integer changes.
TEST(Adapters, ShiftGroupsOfIntegers) {
  const fs::path checkpoints = inputs() / "checkpoints";
  TempDir dir;
  PeftFiles adapter;
  adapter.config["use_qalora"] = true;
  adapter.config["qalora_group_size"] = 128;
  adapter.tensors = {{peftQuery(".lora_A.weight"), random({2, 2}, 1)},
                     {peftQuery(".lora_B.weight"), random({256, 2}, 2)}};
  write(dir, adapter);
  struct Case {
    fs::path base, adapter;
    WeightFormat before, after;
    size_t group;
  };
  const Case cases[] = {
      {"gptq-qwen3-int4-asym-v2", inputs() / "adapters/qalora-qwen3-paper",
       WeightFormat::Q4_Z_32, WeightFormat::Q4_Z_32, 32},
      {"gptq-qwen2-int4-g128", dir.path(), WeightFormat::Q4_G128,
       WeightFormat::Q4_Z_128, 128},
      {"mlx-qwen2-4bit-f16", dir.path(), WeightFormat::Q4_M_64,
       WeightFormat::Q4_M_64, 64},
  };
  for (const Case &c : cases) {
    const Adapted base(checkpoints / c.base, {}),
        model(checkpoints / c.base, {{c.adapter}});
    const WeightSourcePtr from = base.source(query(".weight")),
                          to = model.source(query(".weight"));
    ASSERT_EQ(from->keptFormat(), c.before);
    ASSERT_EQ(to->keptFormat(), c.after);
    EXPECT_TRUE(to->hasIntegers());
    EXPECT_EQ(to->form(), std::string(from->form()) + " + QA-LoRA");
    numerics::EncodeError none, error;
    const std::vector<float> x = keptValues(*from, c.before, none),
                             y = keptValues(*to, c.after, error),
                             exact = model.values(query(".weight"));
    EXPECT_EQ(none.values, 0);
    double errors = 0, squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t first = i / c.group * c.group;
      ASSERT_NEAR(y[i] - x[i], y[first] - x[first], 1e-6) << c.base << i;
      errors += std::pow(double{y[i]} - exact[i], 2);
      squares += std::pow(double{exact[i]}, 2);
    }
    EXPECT_NEAR(error.errors, errors, 1e-3 * errors);
    EXPECT_NEAR(error.values, squares, 1e-6 * squares);
    EXPECT_GT(errors, 0);
    EXPECT_LT(errors, 1e-6 * squares);
  }

  const auto errorWith = [&](int64_t group, const Values &right) {
    adapter.config["qalora_group_size"] = group;
    adapter.tensors[peftQuery(".lora_A.weight")] = right;
    write(dir, adapter);
    const std::string message = messageOf(
        [&] { Adapted(checkpoints / "gptq-qwen2-int4-g128", {{dir.path()}}); });
    return message.substr(std::min(message.size(), dir.string().size()));
  };
  const std::string tensor = "/adapter_model.safetensors: tensor \"" +
                             peftQuery(".lora_A.weight") + '"';
  EXPECT_EQ(errorWith(32, random({2, 8}, 1)),
            tensor + " has means of 32 inputs when a multiple of the group of "
                     "its base, 128, is needed");
  EXPECT_EQ(errorWith(100, random({2, 2}, 1)),
            tensor +
                " has means of 100 inputs when a divisor of 256 is needed");
  EXPECT_EQ(errorWith(128, random({2, 4}, 1)),
            tensor + " has shape [2, 4] when [2, 2] is needed");
  EXPECT_EQ(errorWith(0, random({2, 2}, 1)),
            "/adapter_config.json: qalora_group_size is 0 when an integer from "
            "1 to 16777216 is needed");
  adapter.config["use_dora"] = true;
  EXPECT_EQ(errorWith(128, random({2, 2}, 1)),
            tensor + " is of QA-LoRA, where DoRA is not supported");
  // On floats, it is an update like others.
  adapter.config.erase("use_dora");
  write(dir, adapter);
  const std::vector<float>
      x = Adapted(base("qwen2"), {}).values(query(".weight")),
      y = Adapted(base("qwen2"), {{dir.path()}}).values(query(".weight"));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y[i] - x[i], y[i / 128 * 128] - x[i / 128 * 128], 1e-5);
}

TEST(Adapters, RefuseConfigurations) {
  struct Case {
    const char *key;
    json value;
    const char *message;
  };
  const Case cases[] = {
      {"peft_type", "IA3",
       "peft_type \"IA3\" is not supported; supported is "
       "\"LORA\""},
      {"r", 0, "r is 0 when an integer from 1 to 16777216 is needed"},
      {"r", "2", "r is \"2\" when an integer from 1 to 16777216 is needed"},
      {"r", 16,
       "r of \"model.layers.0.self_attn.q_proj\" is 16 when its tensors have "
       "rank 2"},
      {"lora_alpha", "NaN",
       "lora_alpha is \"NaN\" when a number from -1000000000.0 to 1000000000.0 "
       "is needed"},
      {"lora_alpha", 1e39,
       "lora_alpha is 1e+39 when a number from -1000000000.0 to 1000000000.0 "
       "is needed"},
      {"layer_replication",
       {{0, 1}, {0, 1}},
       "layer_replication an array is not supported; supported is null"},
      {"trainable_token_indices",
       {1},
       "trainable_token_indices an array is not supported; supported is null"},
      {"alora_invocation_tokens",
       {1},
       "alora_invocation_tokens an array is not supported; supported is null"},
      {"fan_in_fan_out", true,
       "fan_in_fan_out true is not supported; supported is false"},
      {"init_lora_weights", "pissa_niter_4",
       "init_lora_weights \"pissa_niter_4\" is not supported; such an adapter "
       "belongs to a changed base model; save it with "
       "path_initial_model_for_weight_conversion"},
      {"base_model_name_or_path", ".",
       "base_model_name_or_path \".\" is not supported; an adapter is not its "
       "own base model"},
      {"alpha_pattern",
       {{"(?!x)y", 1}},
       "alpha_pattern has the regular expression \"(?!x)y\", which RE2 does "
       "not read (invalid perl operator: (?!); look-around and "
       "back-references are not supported"},
      {"alpha_pattern",
       {{"q_proj", "x"}},
       "alpha_pattern.q_proj is \"x\" when a number from -1000000000.0 to "
       "1000000000.0 is needed"},
      {"rank_pattern", 3, "rank_pattern is 3 when an object is needed"},
  };
  for (const auto &[key, value, message] : cases) {
    PeftFiles adapter = queries();
    adapter.config[key] = value;
    EXPECT_EQ(errorOf(adapter),
              std::string("DIR/adapter_config.json: ") + message);
  }
  // Keys that nobody knows are told.
  TempDir dir;
  PeftFiles adapter = queries();
  adapter.config["new_key"] = 1;
  write(dir, adapter);
  EXPECT_EQ(Adapted(base("qwen2"), {{dir.path()}}).checkpoint->config().notes,
            (std::vector<std::string>{
                dir.string() + ", an adapter of PEFT, changes 1 weights; not "
                               "used, unknown keys: new_key"}));
}

TEST(Adapters, RefuseTensors) {
  const std::string a = peftQuery(".lora_A.weight"),
                    b = peftQuery(".lora_B.weight");
  const auto errorWith = [&](const auto &change) {
    PeftFiles adapter = queries();
    change(adapter);
    const std::string message = errorOf(adapter);
    const std::string file = "DIR/adapter_model.safetensors: tensor ";
    return message.starts_with(file) ? message.substr(file.size()) : message;
  };
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors.erase(b); }),
            '"' + a + "\" needs \"" + b + "\", which is not there");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors[b].shape = {128, 4}; }),
            '"' + b + "\" has shape [128, 4] when [256, 2] is needed");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors[a].shape = {2, 128, 2}; }),
            '"' + a +
                "\" has shape [2, 128, 2] when an update of a matrix is "
                "needed");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors[a] = random({2, 63}, 1); }),
            '"' + a + "\" has shape [2, 63] when [2, 256] is needed");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors[b].values[511] = NAN; }),
            '"' + b + "\" has a value that is not finite");
  EXPECT_EQ(errorWith([&](PeftFiles &x) {
              x.tensors["base_model.model.classifier.weight"] =
                  random({2, 64}, 1);
            }),
            "\"base_model.model.classifier.weight\" matches no weight of the "
            "Qwen2ForCausalLM: it has no \"classifier.weight\"");
  EXPECT_EQ(errorWith([&](PeftFiles &x) {
              for (const std::string &name : {a, b}) {
                auto node = x.tensors.extract(name);
                node.key().replace(name.find("layers.0"), 8, "layers.9");
                x.tensors.insert(std::move(node));
              }
            }),
            "\"base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight"
            "\" matches no weight of the Qwen2ForCausalLM: it has no "
            "\"model.layers.9.self_attn.q_proj.weight\"");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.config["use_dora"] = true; }),
            '"' + b + "\" needs \"" + peftQuery(".lora_magnitude_vector") +
                "\", which is not there");
  EXPECT_EQ(errorWith([&](PeftFiles &x) {
              x.tensors[peftQuery(".lora_magnitude_vector")] = random({256}, 1);
            }),
            '"' + peftQuery(".lora_magnitude_vector") +
                "\" is there, but the configuration has "
                "no DoRA");
  EXPECT_EQ(errorWith([&](PeftFiles &x) {
              x.tensors["base_model.model.lm_head.weight"] =
                  random({31, 64}, 1);
            }),
            "\"base_model.model.lm_head.weight\" has shape [31, 64] when [320, "
            "256] is needed");
  EXPECT_EQ(errorWith([&](PeftFiles &x) { x.tensors.clear(); }),
            "DIR, an adapter of PEFT, has no tensor that changes the model");

  // An output projection has no bias.
  PeftFiles adapter;
  const std::string o = "base_model.model.model.layers.0.self_attn.o_proj.";
  adapter.tensors = {{o + "lora_A.weight", random({2, 256}, 1)},
                     {o + "lora_B.weight", random({256, 2}, 2)},
                     {o + "lora_B.bias", random({256}, 3)}};
  EXPECT_EQ(errorOf(adapter),
            "DIR/adapter_model.safetensors: tensor \"" + o +
                "lora_B.bias\" matches no weight of the Qwen2ForCausalLM: it "
                "has no \"model.layers.0.self_attn.o_proj.bias\"");
}

TEST(Adapters, RefuseFiles) {
  TempDir dir;
  const auto error = [&](const fs::path &model) {
    return messageOf([&] { Adapted(model, {{dir.path()}}); });
  };
  dir.write("adapter_model.bin", "\x80");
  EXPECT_EQ(error(base("qwen2")),
            dir.string() +
                " has no adapter_model.safetensors or adapters.safetensors; a "
                "pickle (adapter_model.bin) is not supported: load it with "
                "PEFT and save it again");
  writeTensors(dir, "adapter_model.safetensors", {});
  EXPECT_EQ(error(base("qwen2")), dir.string() + " has no adapter_config.json");
  write(dir, queries());
  // An adapter is no model.
  EXPECT_EQ(messageOf([&] { openCheckpoint(dir.path()); }),
            dir.string() +
                " is an adapter when a model is needed; compile its base model "
                "with --lora " +
                dir.string());
}
