//===- AdapterRefusalsTest.cpp - Adapters that are refused ----------------===//

#include "AdapterFiles.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

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
  // Keys that nobody knows are told, unless they are null.
  TempDir dir;
  PeftFiles adapter = queries();
  adapter.config["new_key"] = 1;
  adapter.config["new_feature"] = nullptr;
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
  const auto error = [&](const std::filesystem::path &model) {
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
