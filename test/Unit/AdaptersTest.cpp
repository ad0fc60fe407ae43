//===- AdaptersTest.cpp - Adapters that are merged into a model -----------===//

#include "AdapterFiles.h"

#include "qwen/Weights/Owned.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;
namespace fs = std::filesystem;

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

/// A state that PEFT did not save itself has the name of the adapter in it.
TEST(Adapters, MayHaveTheNameOfTheAdapter) {
  TempDir plain, named;
  PeftFiles adapter = queries();
  const std::string embedding = "base_model.model.model.embed_tokens",
                    head = "base_model.model.lm_head",
                    norm = "base_model.model.model.norm";
  const Values magnitudes = {{256}, Random(5).values(256)};
  adapter.config["use_dora"] = true;
  adapter.config["lora_bias"] = true;
  adapter.tensors[peftQuery(".lora_magnitude_vector")] = magnitudes;
  adapter.tensors[peftQuery(".lora_B.bias")] = random({256}, 6);
  adapter.tensors[norm + ".weight"] = random({256}, 7);
  write(plain, adapter);
  const auto rename = [&](const std::string &from, const std::string &to) {
    adapter.tensors[to] = adapter.tensors.at(from);
    adapter.tensors.erase(from);
  };
  for (const char *name : {"default", "my_adapter"}) {
    PeftFiles before = adapter;
    const std::string part = std::string(".") + name;
    for (const auto &[module, end] :
         {std::pair(".lora_A", ".weight"), std::pair(".lora_B", ".weight"),
          std::pair(".lora_B", ".bias")})
      rename(peftQuery(std::string(module) + end),
             peftQuery(module + part + end));
    rename(peftQuery(".lora_magnitude_vector"),
           peftQuery(".lora_magnitude_vector" + part + ".weight"));
    rename(norm + ".weight", norm + ".modules_to_save" + part + ".weight");
    write(named, adapter);
    const Adapted one(base("qwen2"), {{plain.path()}}),
        other(base("qwen2"), {{named.path()}});
    for (const std::string &weight :
         {query(".weight"), query(".bias"), std::string("model.norm.weight")})
      EXPECT_EQ(one.values(weight), other.values(weight)) << weight;
    adapter = before;
  }
  // An embedding has no ".weight".
  PeftFiles tokens;
  tokens.tensors = {{embedding + ".lora_embedding_A", random({2, 320}, 3)},
                    {embedding + ".lora_embedding_B", random({256, 2}, 4)}};
  write(plain, tokens);
  for (const char *factor : {"A", "B"}) {
    const std::string name = embedding + ".lora_embedding_" + factor;
    tokens.tensors[name + ".default"] = tokens.tensors.at(name);
    tokens.tensors.erase(name);
  }
  write(named, tokens);
  const std::string weight = "model.embed_tokens.weight";
  EXPECT_EQ(Adapted(base("qwen2"), {{plain.path()}}).values(weight),
            Adapted(base("qwen2"), {{named.path()}}).values(weight));

  // Two adapters in one file.
  PeftFiles two = queries();
  two.tensors[peftQuery(".lora_A.other.weight")] = random({2, 256}, 1);
  EXPECT_EQ(errorOf(two), "DIR/adapter_model.safetensors: tensor \"" +
                              peftQuery(".lora_A.weight") +
                              "\" is the same as \"" +
                              peftQuery(".lora_A.other.weight") + "\"");
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
