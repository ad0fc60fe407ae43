//===- ConfigTest.cpp - Readers of checkpoints' configurations ------------===//

#include "qwen/Import/Checkpoint/Config.h"

#include "qwen/Import/Checkpoint/Known.h"

#include "PublishedConfigs.h"
#include "TempDir.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

/// The error about `config` if `key` (a path with slashes) has `value`.
static std::string errorWith(json config, const std::string &key,
                             const json &value) {
  config[json::json_pointer("/" + key)] = value;
  return configError(config);
}

TEST(Config, ReadsPublishedKeys) {
  const ModelConfig config = readConfig(qwen2());
  EXPECT_EQ(config.architecture, Architecture::Qwen2);
  EXPECT_EQ(infoOf(config.architecture).name, "Qwen2ForCausalLM");
  EXPECT_EQ(config.vocabSize, 151936);
  EXPECT_EQ(config.hiddenSize, 896);
  EXPECT_EQ(config.layers, 24);
  EXPECT_EQ(config.heads, 14);
  EXPECT_EQ(config.kvHeads, 2);
  EXPECT_EQ(config.headDim, 64);
  EXPECT_EQ(config.intermediateSize, 4864);
  EXPECT_EQ(config.ropeTheta, 1e6);
  EXPECT_EQ(config.rmsNormEps, 1e-6);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(config.maxPosition, 32768);
}

TEST(Config, ReadsTransformers5Keys) {
  const ModelConfig config = readConfig(qwen3());
  EXPECT_EQ(config.architecture, Architecture::Qwen3);
  EXPECT_EQ(infoOf(config.architecture).name, "Qwen3ForCausalLM");
  EXPECT_EQ(config.headDim, 32);
  EXPECT_EQ(config.ropeTheta, 5e6);
  EXPECT_EQ(config.rmsNormEps, 1e-5);
  EXPECT_FALSE(config.tied);
}

TEST(Config, ReadsQwen1) {
  json old = qwen1();
  for (const auto &[key, name] :
       {std::pair("hidden_size", "n_embd"),
        std::pair("num_hidden_layers", "n_layer"),
        std::pair("num_attention_heads", "n_head"),
        std::pair("intermediate_size", "ffn_hidden_size"),
        std::pair("max_position_embeddings", "n_positions")}) {
    old[name] = old[key];
    old.erase(key);
  }
  for (const json &keys : {qwen1(), old}) {
    const ModelConfig config = readConfig(keys);
    EXPECT_EQ(config.architecture, Architecture::Qwen1);
    EXPECT_EQ(config.hiddenSize, 96);
    EXPECT_EQ(config.layers, 2);
    EXPECT_EQ(config.heads, 3);
    EXPECT_EQ(config.kvHeads, 3);
    EXPECT_EQ(config.headDim, 32);
    EXPECT_EQ(config.rotatedDim, 32);
    EXPECT_EQ(config.intermediateSize, 224);
    EXPECT_EQ(config.ropeTheta, 1e4);
    EXPECT_EQ(config.rmsNormEps, 1e-5);
    EXPECT_FALSE(config.tied);
    EXPECT_EQ(config.maxPosition, 64);
  }
  // As in the 72B.
  json plain = qwen1();
  plain["use_logn_attn"] = plain["use_dynamic_ntk"] = false;
  EXPECT_EQ(readConfig(plain).maxPosition, 512);
  // Both are on without a key.
  plain.erase("use_logn_attn");
  EXPECT_EQ(readConfig(plain).maxPosition, 64);
}

TEST(Config, RefusesOtherQwen1) {
  for (const auto &[key, value, error] :
       {std::tuple("no_bias", json(false), "supported is true"),
        std::tuple("scale_attn_weights", json(false), "supported is true"),
        std::tuple("use_cache_quantization", json(true), "supported is false"),
        std::tuple("apply_residual_connection_post_layernorm", json(true),
                   "supported is false"),
        std::tuple("activation", json("gelu"), "supported is \"swiglu\""),
        std::tuple("pos_emb", json("alibi"), "supported is \"rotary\""),
        std::tuple("rotary_pct", json(0.5), "supported is 1")})
    EXPECT_EQ(errorWith(qwen1(), key, value),
              std::string(key) + " " + value.dump() + " is not supported; " +
                  error);
  EXPECT_EQ(errorWith(qwen1(), "intermediate_size", 447),
            "intermediate_size is 447 when a multiple of 2 is needed");
  json config = qwen1();
  config.erase("hidden_size");
  EXPECT_EQ(configError(config), "has no hidden_size");
}

TEST(Config, ReadsHybrids) {
  ModelConfig config = readConfig(qwen35());
  EXPECT_EQ(config.architecture, Architecture::Qwen3_5Vision);
  const LinearAttention linear = {2, 64, 6, 32};
  EXPECT_EQ(linear.channels(), 448);
  const std::vector<LayerKind> kinds = {linear, linear, FullAttention(),
                                        linear, linear, FullAttention()};
  EXPECT_EQ(config.layerKinds, kinds);
  EXPECT_EQ(config.rotatedDim, 8);
  EXPECT_EQ(config.ropeTheta, 1e7);
  EXPECT_TRUE(config.tied);

  json text = qwen35()["text_config"];
  text["architectures"] = {"Qwen3_5ForCausalLM"};
  text["full_attention_interval"] = 3;
  text["rope_parameters"]["rope_type"] = "mrope";
  text.erase("layer_types");
  config = readConfig(text);
  EXPECT_EQ(config.architecture, Architecture::Qwen3_5);
  EXPECT_EQ(config.layerKinds, kinds);
  EXPECT_FALSE(config.tied);
  const ModelConfig full = readConfig(qwen3());
  EXPECT_EQ(full.rotatedDim, 32);
  EXPECT_EQ(full.layerKinds,
            std::vector<LayerKind>(static_cast<size_t>(full.layers)));
}

TEST(Config, RefusesOtherHybrids) {
  const auto error = [](const char *key, const json &value) {
    return errorWith(qwen35(), std::string("text_config/") + key, value);
  };
  EXPECT_EQ(error("layer_types", {"full_attention"}),
            "text_config.layer_types has 1 elements when num_hidden_layers is "
            "6");
  EXPECT_EQ(error("layer_types/1", "mamba"),
            "text_config.layer_types[1] \"mamba\" is not supported; supported "
            "are \"full_attention\" and \"linear_attention\"");
  EXPECT_EQ(error("linear_conv_kernel_dim", 3),
            "text_config.linear_conv_kernel_dim is 3 when an integer from 4 to "
            "4 is needed");
  EXPECT_EQ(error("linear_num_value_heads", 5),
            "text_config.linear_num_value_heads is 5 when a multiple of "
            "linear_num_key_heads, 2, is needed");
  EXPECT_EQ(error("linear_key_head_dim", 48),
            "text_config.linear_key_head_dim is 48 when a multiple of 32 is "
            "needed");
  EXPECT_EQ(error("head_dim", 40),
            "text_config.head_dim is 40 when a multiple of 32 is needed");
  for (double factor : {0.1, 0.5625, 0.0})
    EXPECT_EQ(
        error("rope_parameters/partial_rotary_factor", factor),
        "text_config.rope_parameters.partial_rotary_factor is " +
            json(factor).dump() +
            " when a part of head_dim, 32, that is a multiple of 8 is needed");
  EXPECT_EQ(error("attn_output_gate", false),
            "text_config.attn_output_gate false is not supported; supported is "
            "true");
  EXPECT_EQ(error("output_gate_type", "sigmoid"),
            "text_config.output_gate_type \"sigmoid\" is not supported; "
            "supported is \"swish\"");
  EXPECT_EQ(error("dual_chunk_attention_config", {{"chunk_size", 1}}),
            "text_config.dual_chunk_attention_config an object is not "
            "supported; supported is null");
}

TEST(Config, ReadsYarn) {
  json config = qwen2();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  ModelConfig found = readConfig(config);
  ASSERT_TRUE(found.yarn);
  EXPECT_EQ(found.yarn->factor, 4);
  EXPECT_EQ(found.yarn->positions, 32768);
  EXPECT_EQ(found.yarn->fast, 32);
  EXPECT_EQ(found.yarn->slow, 1);
  EXPECT_EQ(found.maxPosition, 131072);
  EXPECT_NEAR(found.ropeScale(), 1.13863, 1e-5);

  config = qwen3();
  config["rope_parameters"].update({{"rope_type", "yarn"},
                                    {"factor", 2.5},
                                    {"original_max_position_embeddings", 512},
                                    {"beta_fast", 16},
                                    {"beta_slow", 2},
                                    {"attention_factor", 1.05}});
  found = readConfig(config);
  ASSERT_TRUE(found.yarn);
  EXPECT_EQ(found.yarn->positions, 512);
  EXPECT_EQ(found.yarn->fast, 16);
  EXPECT_EQ(found.yarn->slow, 2);
  EXPECT_EQ(found.ropeScale(), 1.05);
}

TEST(Config, TakesDefaults) {
  json config = qwen3();
  for (const char *key :
       {"attention_bias", "hidden_act", "layer_types", "sliding_window",
        "tie_word_embeddings", "use_sliding_window"})
    config.erase(key);
  config["rope_parameters"].erase("rope_type");
  config["num_key_value_heads"] = nullptr;
  const ModelConfig found = readConfig(config);
  EXPECT_FALSE(found.tied);
  EXPECT_EQ(found.kvHeads, 4);

  // Keys that change nothing.
  config["rope_scaling"] = nullptr;
  config["rope_theta"] = 5000000;
  config["partial_rotary_factor"] = 1.0;
  config["quantization_config"] = nullptr;
  config["rope_parameters"]["partial_rotary_factor"] = 1;
  EXPECT_EQ(configError(config), "");
  config["rope_scaling"] = {{"type", "default"}};
  EXPECT_EQ(configError(config), "");
  // Qwen2's biases don't depend on attention_bias.
  EXPECT_EQ(errorWith(qwen2(), "attention_bias", true), "");
}

TEST(Config, RefusesFiles) {
  TempDir dir;
  const auto error = [&](const std::filesystem::path &path) {
    return messageOf([&] { readModelConfig(path); });
  };
  EXPECT_EQ(error(dir.path() / "none"),
            dir.string() + "/none does not exist: a Hugging Face folder or a "
                           "GGUF file is needed");
  EXPECT_EQ(error(dir.path()),
            dir.string() + " has no config.json: the folder of a Hugging Face "
                           "checkpoint is needed");
  const std::string path = dir.string() + "/config.json";
  for (const auto &[text, where] : std::map<std::string, std::string>{
           {"", ": it is empty"},
           {"{", ": it ends too early, at column 2"},
           {"{\"a\": nan}", " at column 8"},
           {"{\"a\": 1NaN}", " at column 13"},
           {"{NaN: 1}", " at column 2"},
           {"{}{}", " at column 3"}}) {
    dir.write("config.json", text);
    EXPECT_EQ(error(dir.path()), path + " is not JSON" + where) << text;
  }
  dir.write("config.json", "[{}]");
  EXPECT_EQ(error(dir.path()),
            path + " has an array when a JSON object is needed");
  const auto nested = [](size_t depth) {
    return R"({"a": "[[\"[", "b": )" + std::string(depth - 1, '[') +
           std::string(depth - 1, ']') + "}";
  };
  dir.write("config.json", nested(64));
  EXPECT_EQ(error(dir.path()), path + " has no architectures");
  for (size_t depth : {size_t{65}, size_t{1} << 20}) {
    dir.write("config.json", nested(depth));
    EXPECT_EQ(error(dir.path()),
              path + " has arrays and objects nested more than 64 deep");
  }
  std::filesystem::resize_file(path, (64 << 20) + 1);
  EXPECT_EQ(error(dir.path()),
            path + " has 67108865 bytes when at most 67108864 are expected");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(error(dir.path()), "cannot read " + path + ": it is not a file");
}

/// Python writes and reads numbers that JSON lacks.
TEST(Config, ReadsPythonsNumbers) {
  TempDir dir;
  const auto error = [&](const std::string &key, const char *number) {
    json config = qwen2();
    config[key] = "PLACE";
    // Not inside of strings.
    config["_name_or_path"] = "a \"NaN, -Infinity: \\";
    std::string text = config.dump();
    text.replace(text.find("\"PLACE\""), 7, number);
    dir.write("config.json", text);
    return messageOf([&] { readModelConfig(dir.path()); });
  };
  for (const char *number : {"NaN", "Infinity", "-Infinity"}) {
    EXPECT_EQ(error("attention_dropout", number), "");
    EXPECT_EQ(error("surprise", number), "");
    const std::string path = dir.string() + "/config.json: ";
    for (const auto &[key, needed] :
         {std::pair("rms_norm_eps", "a number from 1e-30 to 1.0"),
          std::pair("rope_theta", "a number from 1e-30 to 1e+30"),
          std::pair("hidden_size", "an integer from 1 to 16777216"),
          std::pair("tie_word_embeddings", "true or false")})
      EXPECT_EQ(error(key, number), path + key + " is " + number + " when " +
                                        needed + " is needed");
    EXPECT_EQ(error("logit_scale", number),
              path + "logit_scale " + number +
                  " is not supported; supported is 1");
    EXPECT_EQ(error("hidden_act", number),
              path + "hidden_act is " + number + " when a string is needed");
  }
}

TEST(Config, RefusesTypesAndRanges) {
  const std::pair<const char *, const char *> ranges[] = {
      {"hidden_size", "16777216"},
      {"intermediate_size", "16777216"},
      {"max_position_embeddings", "1073741824"},
      {"num_attention_heads", "65536"},
      {"num_hidden_layers", "65536"},
      {"num_key_value_heads", "65536"},
      {"vocab_size", "2147483647"}};
  for (const auto &[key, most] : ranges)
    for (const char *value : {"0", "-32", "4294967296", "18446744073709551615",
                              "64.0", "\"64\"", "true"})
      EXPECT_EQ(errorWith(qwen2(), key, json::parse(value)),
                std::string(key) + " is " + value +
                    " when an integer from 1 to " + most + " is needed");
  EXPECT_EQ(errorWith(qwen2(), "hidden_size", json::array()),
            "hidden_size is an array when an integer from 1 to 16777216 is "
            "needed");
  for (const char *value : {"0", "-1", "1.5", "\"1e-6\"", "null"})
    EXPECT_EQ(errorWith(qwen2(), "rms_norm_eps", json::parse(value)),
              std::string("rms_norm_eps is ") + value +
                  " when a number from 1e-30 to 1.0 is needed");
  for (const char *value : {"0", "-10000.0", "1e+300", "\"10000\"", "null"})
    EXPECT_EQ(errorWith(qwen2(), "rope_theta", json::parse(value)),
              std::string("rope_theta is ") + value +
                  " when a number from 1e-30 to 1e+30 is needed");
  EXPECT_EQ(errorWith(qwen3(), "rope_parameters/rope_theta", 0),
            "rope_parameters.rope_theta is 0 when a number from 1e-30 to 1e+30 "
            "is needed");
  EXPECT_EQ(errorWith(qwen3(), "rope_parameters", "default"),
            "rope_parameters is \"default\" when an object is needed");
  EXPECT_EQ(errorWith(qwen3(), "rope_parameters/rope_type", nullptr),
            "rope_parameters.rope_type is null when a string is needed");
  EXPECT_EQ(errorWith(qwen2(), "hidden_act", 3),
            "hidden_act is 3 when a string is needed");
  EXPECT_EQ(errorWith(qwen3(), "layer_types", "full_attention"),
            "layer_types is \"full_attention\" when an array is needed");
  EXPECT_EQ(errorWith(qwen3(), "layer_types/1", 1),
            "layer_types[1] is 1 when a string is needed");
  for (const char *key :
       {"tie_word_embeddings", "use_sliding_window", "attention_bias"})
    EXPECT_EQ(errorWith(qwen3(), key, "no"),
              std::string(key) + " is \"no\" when true or false is needed");
  EXPECT_EQ(errorWith(qwen2(), "partial_rotary_factor", "1"),
            "partial_rotary_factor is \"1\" when a number from 0.0 to 1.0 is "
            "needed");
  EXPECT_EQ(errorWith(qwen2(), "architectures", "Qwen2ForCausalLM"),
            "architectures is \"Qwen2ForCausalLM\" when an array is needed");
  for (const json &names : {json::array(), json({"Qwen2ForCausalLM", "B"})})
    EXPECT_EQ(errorWith(qwen2(), "architectures", names),
              "architectures is an array when an array of one name is needed");
  EXPECT_EQ(errorWith(qwen2(), "architectures/0", 2),
            "architectures[0] is 2 when a string is needed");
}

TEST(Config, RefusesSizesThatDisagree) {
  EXPECT_EQ(errorWith(qwen2(), "num_key_value_heads", 4),
            "num_attention_heads is 14 when a multiple of num_key_value_heads, "
            "4, is needed");
  EXPECT_EQ(errorWith(qwen2(), "num_key_value_heads", 28),
            "num_attention_heads is 14 when a multiple of num_key_value_heads, "
            "28, is needed");
  EXPECT_EQ(errorWith(qwen2(), "hidden_size", 897),
            "hidden_size is 897 when a multiple of num_attention_heads, 14, is "
            "needed");
  for (const int headDim : {8, 20, 264})
    EXPECT_EQ(errorWith(qwen3(), "head_dim", headDim),
              "head_dim is " + std::to_string(headDim) +
                  " when a multiple of 8 from 16 to 256 is needed");
  EXPECT_EQ(errorWith(qwen2(), "hidden_size", 14),
            "head_dim is 1 when a multiple of 8 from 16 to 256 is needed");
  EXPECT_EQ(errorWith(qwen3(), "layer_types", {"full_attention"}),
            "layer_types has 1 elements when num_hidden_layers is 2");
  EXPECT_EQ(errorWith(qwen3(), "rope_theta", 10000),
            "rope_theta is 10000 when 5000000.0, as in rope_parameters, is "
            "needed");
}

TEST(Config, RefusesKsThatAreNoWholeGroups) {
  EXPECT_EQ(errorWith(qwen3(), "hidden_size", 72),
            "K of model.layers.0.self_attn.q_proj.weight is 72 when a multiple "
            "of 32 is needed");
  json config = qwen3();
  config["num_attention_heads"] = config["num_key_value_heads"] = 1;
  EXPECT_EQ(errorWith(config, "head_dim", 24),
            "K of model.layers.0.self_attn.o_proj.weight is 24 when a multiple "
            "of 32 is needed");
  EXPECT_EQ(errorWith(qwen3(), "intermediate_size", 112),
            "K of model.layers.0.mlp.down_proj.weight is 112 when a multiple "
            "of 32 is needed");
}

TEST(Config, RefusesOtherModels) {
  const std::string supported =
      "supported are Qwen2ForCausalLM (Qwen2, Qwen2.5), Qwen3ForCausalLM, "
      "Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration (the text of "
      "Qwen3.5), Qwen2_5_VLForConditionalGeneration (the text of Qwen2.5-VL)"
      ", Qwen3VLForConditionalGeneration (the text of Qwen3-VL), "
      "QWenLMHeadModel (Qwen 1), Qwen2MoeForCausalLM, Qwen3MoeForCausalLM, "
      "Qwen3VLMoeForConditionalGeneration (the text of Qwen3-VL-MoE), "
      "Qwen3_5MoeForCausalLM, Qwen3_5MoeForConditionalGeneration (the text of "
      "Qwen3.5-MoE) and Qwen3NextForCausalLM";
  for (const char *name :
       {"LlamaForCausalLM", "Qwen4ExpForConditionalGeneration",
        "Qwen2ForSequenceClassification"})
    EXPECT_EQ(errorWith(qwen2(), "architectures/0", name),
              std::string("architectures[0] \"") + name +
                  "\" is not supported; " + supported);
  EXPECT_EQ(messageOf([] {
              readModelConfig(QWEN_SOURCE_DIR
                              "/test/Inputs/checkpoints/qwen4_exp-bf16");
            }),
            QWEN_SOURCE_DIR
                "/test/Inputs/checkpoints/qwen4_exp-bf16/config.json: "
                "architectures[0] \"Qwen4ExpForConditionalGeneration\" is not "
                "supported; " +
                supported);
  EXPECT_EQ(errorWith(qwen2(), "hidden_act", "gelu"),
            "hidden_act \"gelu\" is not supported; supported is \"silu\"");
  EXPECT_EQ(errorWith(qwen2(), "rope_scaling", {{"type", "mrope"}}),
            "rope_scaling.type \"mrope\" is not supported; supported are "
            "\"default\" and \"yarn\"");
  EXPECT_EQ(errorWith(qwen2(), "rope_scaling", {{"rope_type", "linear"}}),
            "rope_scaling.rope_type \"linear\" is not supported; supported are "
            "\"default\" and \"yarn\"");
  EXPECT_EQ(errorWith(qwen2(), "rope_scaling", {{"factor", 2}}),
            "rope_scaling an object is not supported; supported is null or an "
            "object with a type");
  EXPECT_EQ(errorWith(qwen3(), "rope_parameters/rope_type", "dynamic"),
            "rope_parameters.rope_type \"dynamic\" is not supported; supported "
            "are \"default\" and \"yarn\"");
  EXPECT_EQ(errorWith(qwen2(), "rope_scaling", {{"type", "yarn"}}),
            "has no rope_scaling.factor");
  EXPECT_EQ(
      errorWith(qwen2(), "rope_scaling", {{"type", "yarn"}, {"factor", 0.5}}),
      "rope_scaling.factor is 0.5 when a number from 1.0 to 1000000.0 "
      "is needed");
  EXPECT_EQ(errorWith(qwen2(), "rope_scaling",
                      {{"type", "yarn"}, {"factor", 4}, {"truncate", false}}),
            "rope_scaling.truncate false is not supported; supported is true");
  EXPECT_EQ(errorWith(qwen2(), "use_sliding_window", true),
            "use_sliding_window true is not supported; supported is false");
  for (const char *type : {"sliding_attention", "linear_attention"})
    EXPECT_EQ(errorWith(qwen3(), "layer_types/1", type),
              std::string("layer_types[1] \"") + type +
                  "\" is not supported; supported is \"full_attention\"");
  EXPECT_EQ(errorWith(qwen3(), "attention_bias", true),
            "attention_bias true is not supported; supported is false");
  EXPECT_EQ(errorWith(qwen2(), "partial_rotary_factor", 0.5),
            "partial_rotary_factor 0.5 is not supported; supported is 1");
  EXPECT_EQ(errorWith(qwen3(), "rope_parameters/partial_rotary_factor", 0.25),
            "rope_parameters.partial_rotary_factor 0.25 is not supported; "
            "supported is 1");
}

TEST(Config, ReadsTextModelsInAnyForm) {
  // Where the keys of the text model are.
  json flat = qwen35()["text_config"];
  flat.update({{"architectures", {"Qwen3_5ForConditionalGeneration"}},
               {"model_type", "qwen3_5"}});
  EXPECT_EQ(readConfig(flat).layers, 6);
  json nested = qwen2();
  nested.erase("architectures");
  nested["model_type"] = "qwen2_5_vl_text";
  nested = {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
            {"model_type", "qwen2_5_vl"},
            {"text_config", nested}};
  EXPECT_EQ(readConfig(nested).layers, 24);

  // Older libraries write keys twice.
  nested["num_hidden_layers"] = 24;
  EXPECT_TRUE(readConfig(nested).notes.empty());
  nested["num_hidden_layers"] = 25;
  EXPECT_EQ(readConfig(nested).layers, 24);
  EXPECT_EQ(
      readConfig(nested).notes,
      std::vector<std::string>{"not used, unknown keys: num_hidden_layers"});
}

TEST(Config, TellsUnknownKeys) {
  for (const json &config : {qwen1(), qwen2(), qwen3(), qwen35()})
    EXPECT_TRUE(readConfig(config).notes.empty()) << config;

  json config = qwen35();
  config["new\n"] = 1;
  config["new_feature"] = nullptr;
  config["text_config"]["other"] = {{"inner", 1}};
  config["text_config"]["rope_parameters"]["factor"] = 4;
  // Nobody reads what is inside of a known or of an unknown key.
  config["vision_config"]["rope_parameters"] = {{"factor", 4}};
  EXPECT_EQ(readConfig(config).notes,
            std::vector<std::string>{
                "not used, unknown keys: new\\n, text_config.other, "
                "text_config.rope_parameters.factor"});
}

TEST(Config, RefusesKeysThatChangeTheResult) {
  for (const auto &[key, value, supported] :
       {std::tuple("is_causal", json(false), "true"),
        std::tuple("use_bidirectional_attention", json(true), "false"),
        std::tuple("final_logit_softcapping", json(30.0), "null"),
        std::tuple("logit_scale", json(0.5), "1"),
        std::tuple("residual_multiplier", json(0.22), "1"),
        std::tuple("num_experts", json(8), "0"),
        std::tuple("attn_output_gate", json(true), "false"),
        std::tuple("rope_interleaved", json(true), "false"),
        std::tuple("hidden_activation", json("gelu"), "\"silu\"")}) {
    const std::string refused = std::string(key) + " " + value.dump() +
                                " is not supported; supported is " + supported;
    EXPECT_EQ(errorWith(qwen3(), key, value), refused);
    EXPECT_EQ(errorWith(qwen3(), key, nullptr), "");
    EXPECT_EQ(errorWith(qwen3(), key, json::parse(supported)), "");
    if (key != std::string_view("attn_output_gate")) {
      EXPECT_EQ(errorWith(qwen35(), std::string("text_config/") + key, value),
                "text_config." + refused);
    }
  }
  EXPECT_EQ(errorWith(qwen2(), "is_causal", "no"),
            "is_causal is \"no\" when true or false is needed");
  EXPECT_EQ(errorWith(qwen2(), "logit_scale", 1.0), "");
}

TEST(Config, RefusesOtherTypesAndCode) {
  EXPECT_EQ(errorWith(qwen2(), "model_type", "qwen3"),
            "model_type \"qwen3\" is not supported; supported is \"qwen2\" of "
            "Qwen2ForCausalLM");
  EXPECT_EQ(
      errorWith(qwen2(), "model_type", "qwen2_text"),
      "model_type \"qwen2_text\" is not supported; supported is \"qwen2\" "
      "of Qwen2ForCausalLM");
  EXPECT_EQ(errorWith(qwen35(), "text_config/model_type", "llama"),
            "text_config.model_type \"llama\" is not supported; supported is "
            "\"qwen3_5\" of Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(errorWith(qwen35(), "text_config/model_type", "qwen3_5_text"), "");

  const auto withCode = [](const char *key, const char *name) {
    return errorWith(qwen2(), "auto_map", {{key, name}});
  };
  EXPECT_EQ(withCode("AutoModelForCausalLM", "modeling.DreamModel"),
            "auto_map.AutoModelForCausalLM \"modeling.DreamModel\" is not "
            "supported; supported is the class of architectures, "
            "Qwen2ForCausalLM");
  EXPECT_EQ(withCode("AutoModel", "a/b--modeling.Qwen2BiModel"),
            "auto_map.AutoModel \"a/b--modeling.Qwen2BiModel\" is not "
            "supported; supported is the class of architectures, "
            "Qwen2ForCausalLM");
  EXPECT_EQ(withCode("AutoModelForCausalLM", "a/b--modeling.Qwen2ForCausalLM"),
            "");
  EXPECT_EQ(withCode("AutoModel", "modeling.Qwen2Model"), "");
  json config = qwen2();
  config["auto_map"] = {{"AutoConfig", "c.Config"}, {"AutoOther", "o.Other"}};
  EXPECT_EQ(
      readConfig(config).notes,
      std::vector<std::string>{"not used, unknown keys: auto_map.AutoOther"});
}

TEST(Config, DocumentsWhatIsKnown) {
  std::ifstream file(QWEN_SOURCE_DIR "/docs/import.md");
  std::string text;
  for (std::string word; file >> word;)
    text += word + " ";
  const auto expect = [&](std::string_view what) {
    EXPECT_NE(text.find(what), text.npos) << what;
  };
  for (const KnownNames &names : knownTensors())
    expect(names.kind);
  for (const KnownKeys &keys :
       {knownConfigKeys(), knownGgufKeys("qwen3"), knownGenerationKeys()}) {
    for (const KnownNames &names : keys.known)
      expect(names.kind);
    // Of the others the page says that they are told.
    if (keys.tellsFixed)
      continue;
    for (const FixedKey &fixed : keys.fixed)
      expect("`" + std::string(fixed.key) + "`");
  }
}
