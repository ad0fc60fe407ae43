//===- ConfigDefaultsTest.cpp - Keys that config.json leaves out ----------===//
//
// Compares what the importer takes for a key that is not there with the default
// of the architecture's configuration class in transformers, which
// test/Inputs/make_config_defaults.py records.
//
//===----------------------------------------------------------------------===//

#include "qwen/Import/Checkpoint/Config.h"

#include "PublishedConfigs.h"
#include "TempDir.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

static json record() {
  return json::parse(
      std::ifstream(QWEN_SOURCE_DIR "/test/Inputs/config_defaults.json"));
}

/// The config.json of `architecture` with all keys of transformers.
static json configOf(const std::string &architecture, const json &entry) {
  json config = entry["config"];
  config["architectures"] = {architecture};
  return config;
}

/// The object of `config` with the keys of the text model.
static json &textOf(json &config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

/// All that a model computes with.
static json describeModel(const ModelConfig &model) {
  json result = {{"rotated", model.rotatedDim},
                 {"positions", model.maxPosition},
                 {"scale", model.ropeScale()},
                 {"yarn", model.yarn.has_value()}};
  for (const Fact<ModelShape> &fact : kShapeFacts)
    fact.visitIn(model, [&](const auto &value) { result[fact.key] = value; });
  for (const LayerKind &kind : model.layerKinds) {
    const auto *linear = std::get_if<LinearAttention>(&kind);
    result["kinds"].push_back(linear
                                  ? json{linear->keyHeads, linear->keyDim,
                                         linear->valueHeads, linear->valueDim}
                                  : json("full"));
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const ExpertsShape *experts = model.expertsOf(layer);
    result["mlp"].push_back(experts ? json{experts->count, experts->active,
                                           experts->width, experts->sharedWidth,
                                           experts->normalized}
                                    : json("dense"));
  }
  return result;
}

TEST(ConfigDefaults, AreThoseOfTransformers) {
  const json recorded = record();
  for (const ArchitectureInfo &info : kArchitectures)
    EXPECT_EQ(recorded.contains(info.name),
              &info != &infoOf(Architecture::Qwen1))
        << info.name;
  for (const auto &[architecture, entry] : recorded.items()) {
    const json all = configOf(architecture, entry);
    const json expected = describeModel(readConfig(all));
    EXPECT_EQ(describeModel(readConfig({{"architectures", {architecture}}})),
              expected)
        << entry["class"];

    // Each key alone.
    json copy = all;
    for (const auto &[key, value] : textOf(copy).items()) {
      json config = all;
      textOf(config).erase(key);
      if (key != "architectures") {
        EXPECT_EQ(describeModel(readConfig(config)), expected)
            << entry["class"] << " " << key;
      }
    }
    // Also where older files have it.
    for (const auto &[key, value] : textOf(copy)["rope_parameters"].items()) {
      json config = all;
      textOf(config)["rope_parameters"].erase(key);
      EXPECT_EQ(describeModel(readConfig(config)), expected)
          << entry["class"] << " " << key;
      textOf(config)[key] = value;
      EXPECT_EQ(describeModel(readConfig(config)), expected)
          << entry["class"] << " " << key;
    }
  }
}

TEST(ConfigDefaults, AreTold) {
  EXPECT_EQ(readConfig({{"architectures", {"Qwen3_5ForCausalLM"}},
                        {"hidden_size", 64},
                        {"intermediate_size", 96},
                        {"num_hidden_layers", 4},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2},
                        {"head_dim", 32},
                        {"linear_conv_kernel_dim", 4},
                        {"linear_num_key_heads", 2},
                        {"linear_key_head_dim", 64},
                        {"linear_num_value_heads", 6},
                        {"linear_value_head_dim", 32},
                        {"max_position_embeddings", 256},
                        {"rms_norm_eps", 1e-5},
                        {"vocab_size", 321},
                        {"rope_parameters",
                         {{"rope_type", "yarn"},
                          {"factor", 4.0},
                          {"original_max_position_embeddings", 64}}}})
                .notes,
            std::vector<std::string>{
                "not in config.json, so with the default of transformers: "
                "partial_rotary_factor 0.25 and rope_theta 10000.0"});
  for (const json &config : {qwen1(), qwen2(), qwen3(), qwen35()})
    EXPECT_TRUE(readConfig(config).notes.empty());

  // An error about a default says that it is one.
  json config = qwen3();
  config.erase("num_attention_heads");
  config["num_key_value_heads"] = 5;
  EXPECT_EQ(configError(config),
            "the default of num_attention_heads is 32 when a multiple of "
            "num_key_value_heads, 5, is needed");
  // A Qwen 1 has no class in transformers.
  config = qwen1();
  config.erase("kv_channels");
  EXPECT_EQ(configError(config), "has no kv_channels");
}

/// As in transformers, rope_scaling takes the place of rope_parameters. What
/// only the latter says would get lost.
TEST(ConfigDefaults, OfRopeScalingBesideRopeParameters) {
  json config = qwen35();
  json &text = config["text_config"];
  text["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(configError(config),
            "text_config.rope_parameters scales positions otherwise than "
            "text_config.rope_scaling, which counts; remove one of them");
  text["rope_parameters"].update({{"rope_type", "yarn"}, {"factor", 4.0}});
  EXPECT_EQ(configError(config),
            "text_config.rope_parameters.rope_theta is 10000000.0 when "
            "10000.0, the default where rope_scaling lacks it, is needed");
  text["rope_scaling"]["rope_theta"] = 1e7;
  text["rope_parameters"] = text["rope_scaling"];
  EXPECT_EQ(configError(config), "");
  EXPECT_EQ(readConfig(config).rotatedDim, 8);
  text["rope_parameters"]["factor"] = 2.0;
  EXPECT_NE(configError(config), "");
  text.erase("rope_parameters");
  text["rope_theta"] = 1e7;
  const ModelConfig model = readConfig(config);
  EXPECT_EQ(model.rotatedDim, 8);
  EXPECT_EQ(model.ropeTheta, 1e7);
  EXPECT_EQ(model.yarn->factor, 4);

  // Null is no number that counts.
  text["partial_rotary_factor"] = nullptr;
  EXPECT_EQ(configError(config),
            "text_config.partial_rotary_factor is null when a number from 0.0 "
            "to 1.0 is needed");
  text["partial_rotary_factor"] = 0.5;
  text["rope_scaling"]["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(configError(config),
            "text_config.partial_rotary_factor is 0.5 when 0.25, as in "
            "text_config.rope_scaling, is needed");
}
