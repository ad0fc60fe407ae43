//===- CompressedTensorsTest.cpp - The forms of compressed-tensors --------===//

#include "FormTensors.h"
#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

static constexpr char kMethod[] = "compressed-tensors";

/// A configuration of one group, for all modules.
static json config(const char *format, const json &weights) {
  json scheme = {{"num_bits", 4},    {"type", "int"},       {"symmetric", true},
                 {"group_size", 32}, {"strategy", "group"}, {"dynamic", false}};
  if (weights.is_object())
    scheme.update(weights);
  return {{"quant_method", kMethod},
          {"format", format},
          {"config_groups",
           {{"group_0", {{"targets", {"Linear"}}, {"weights", scheme}}}}}};
}

/// 12 outputs of 64 columns: the code of column k of output n is (n + k) % 16,
/// its zero point n, its scale (n + 1) / 2, and twice that for the second
/// group.
static FormTensors packed() {
  FormTensors tensors;
  std::vector<uint8_t> codes;
  for (int n = 0; n < 12; ++n)
    for (int k = 0; k < 64; k += 2)
      codes.push_back(
          static_cast<uint8_t>((n + k) % 16 | (n + k + 1) % 16 << 4));
  tensors.set("m.weight_packed", "I32", {12, 8}, codes);
  std::vector<float> scales;
  for (int n = 0; n < 12; ++n)
    for (int group : {1, 2})
      scales.push_back(static_cast<float>((n + 1) * group) / 2);
  tensors.set("m.weight_scale", "F32", {12, 2}, scales);
  tensors.set("m.weight_shape", "I64", {2}, std::vector<int64_t>{12, 64});
  // Eight outputs a word, of both groups.
  tensors.set("m.weight_zero_point", "I32", {2, 2},
              std::vector<uint32_t>{0x76543210, 0x76543210, 0xba98, 0xba98});
  return tensors;
}

static float packedValue(int n, int k, int zero) {
  const int group = k / 32;
  const float scale = static_cast<float>((n + 1) * (group + 1)) / 2;
  return static_cast<float>((n + k) % 16 - zero) * scale;
}

TEST(CompressedTensors, ReadPackedIntegers) {
  FormTensors tensors = packed();
  const WeightSourcePtr source = tensors.make(
      kMethod, config("pack-quantized", {{"symmetric", false}}).dump());
  ASSERT_TRUE(source);
  EXPECT_EQ(source->form(), "compressed-tensors 4-bit");
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q4_Z_32);
  EXPECT_EQ(source->shape(), (WeightShape{{12, 64}}));
  std::vector<float> values(768);
  source->read(0, 12, values.data());
  for (int n = 0; n < 12; ++n)
    for (int k = 0; k < 64; ++k)
      ASSERT_EQ(values[static_cast<size_t>(n * 64 + k)], packedValue(n, k, n));
  // Symmetric weights may have zero points, if all are 8.
  const std::string symmetric = config("pack-quantized", {}).dump();
  tensors.erase("m.weight_zero_point");
  tensors.erase("m.weight_shape");
  const WeightSourcePtr second = tensors.make(kMethod, symmetric);
  EXPECT_EQ(second->keptFormat(), WeightFormat::Q4_0);
  second->read(3, 1, values.data());
  EXPECT_EQ(values[40], packedValue(3, 40, 8));
  tensors.set("m.weight_zero_point", "I32", {2, 2},
              std::vector<uint32_t>(4, 0x88888888));
  EXPECT_TRUE(tensors.make(kMethod, symmetric));
}

TEST(CompressedTensors, ReadSignedBytesAndFloats) {
  FormTensors tensors;
  tensors.set("m.weight", "I8", {2, 32}, std::vector<int8_t>(64, -3));
  tensors.set("m.weight_scale", "F32", {2}, std::vector<float>{2, 4});
  tensors.set("m.weight_zero_point", "I8", {2, 1}, std::vector<int8_t>{1, -1});
  const json channel = {{"num_bits", 8}, {"strategy", "channel"}};
  json asymmetric = channel;
  asymmetric["symmetric"] = false;
  std::vector<float> values = valuesOf(
      *tensors.make(kMethod, config("int-quantized", asymmetric).dump()));
  EXPECT_EQ(values[0], -8);
  EXPECT_EQ(values[32], -8);
  tensors.erase("m.weight_zero_point");
  const WeightSourcePtr source =
      tensors.make(kMethod, config("naive-quantized", channel).dump());
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q8_0);
  EXPECT_EQ(source->form(), "compressed-tensors 8-bit");
  EXPECT_EQ(valuesOf(*source)[63], -12);

  tensors.set("m.weight", "F8_E4M3", {2, 32}, std::vector<uint8_t>(64, 0x39));
  const json floats = {
      {"num_bits", 8}, {"strategy", "tensor"}, {"type", "float"}};
  tensors.set("m.weight_scale", "BF16", {}, std::vector<uint16_t>{0x4000});
  values = valuesOf(
      *tensors.make(kMethod, config("float-quantized", floats).dump()));
  EXPECT_EQ(values, std::vector<float>(64, 2.25f));

  FormTensors fours;
  fours.set("m.weight_packed", "U8", {1, 16}, std::vector<uint8_t>(16, 0x92));
  fours.set("m.weight_scale", "U8", {1, 1}, std::vector<uint8_t>{129});
  const WeightSourcePtr four = fours.make(
      kMethod, config("mxfp4-pack-quantized", {{"type", "float"}}).dump());
  EXPECT_EQ(four->form(), "compressed-tensors mxfp4");
  EXPECT_EQ(four->keptFormat(), WeightFormat::FP4);
  values = valuesOf(*four);
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[1], -2);
}

TEST(CompressedTensors, FindTheGroupOfAModule) {
  const FormTensors tensors = packed();
  json value = config("pack-quantized", {});
  // Names count before classes; expressions match from the start.
  json &groups = value["config_groups"];
  groups["group_1"] = groups["group_0"];
  groups["group_1"]["targets"] = {"re:x?m$"};
  groups["group_1"]["weights"]["symmetric"] = false;
  EXPECT_EQ(tensors.make(kMethod, value.dump())->keptFormat(),
            WeightFormat::Q4_Z_32);
  groups["group_1"]["targets"] = {"m"};
  EXPECT_EQ(tensors.make(kMethod, value.dump())->keptFormat(),
            WeightFormat::Q4_Z_32);
  groups["group_0"]["targets"] = {"re:.*n", "Embedding"};
  groups["group_1"]["targets"] = {"re:x"};
  EXPECT_EQ(messageOf([&] { tensors.make(kMethod, value.dump()); }),
            "d/f: tensor \"m.weight_packed\" is quantized but no target in "
            "config_groups has its module");
}

TEST(CompressedTensors, KeepTheOrderOfColumns) {
  FormTensors tensors = packed();
  tensors.erase("m.weight_zero_point");
  std::vector<int32_t> groups(64);
  for (size_t k = 0; k < groups.size(); ++k)
    groups[k] = static_cast<int32_t>(k % 2);
  tensors.set("m.weight_g_idx", "I32", {64}, groups);
  const std::string text =
      config("pack-quantized", {{"actorder", "group"}}).dump();
  const std::vector<float> values = valuesOf(*tensors.make(kMethod, text));
  EXPECT_EQ(values[67], (4 - 8) * 2.0f);
  EXPECT_EQ(values[98], (3 - 8) * 1.0f);
  groups[5] = 2;
  tensors.set("m.weight_g_idx", "I32", {64}, groups);
  EXPECT_EQ(messageOf([&] { tensors.make(kMethod, text); }),
            "d/f: tensor \"m.weight_g_idx\" has the group 2 when 0 to 1 are "
            "there");
}

namespace {
struct BadConfig {
  json weights;
  const char *format;
  const char *message;
};
} // namespace

TEST(CompressedTensors, RefuseConfigurations) {
  const FormTensors tensors = packed();
  const BadConfig cases[] = {
      {{},
       "nvfp4-pack-quantized",
       "c: q.format \"nvfp4-pack-quantized\" is not supported; "
       "supported are pack-quantized, int-quantized, float-quantized, "
       "naive-quantized and mxfp4-pack-quantized; the original model can be "
       "compiled"},
      {{{"num_bits", 0}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.num_bits is 0 when an integer from "
       "1 "
       "to 16 is needed"},
      {{{"num_bits", 3}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.num_bits 3 of type int is not what "
       "pack-quantized holds"},
      {{{"num_bits", "four"}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.num_bits is \"four\" when an "
       "integer "
       "from 1 to 16 is needed"},
      {{{"group_size", nullptr}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.group_size is null when an integer "
       "from 1 to 2147483647 is needed"},
      {{{"group_size", 48}},
       "pack-quantized",
       "d/f: tensor \"m.weight_packed\" has 64 columns when a multiple of "
       "the group size, 48, is needed"},
      {{{"strategy", "tensor_group"}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.strategy \"tensor_group\" is not "
       "supported; supported are group, channel, block and tensor"},
      {{{"dynamic", true}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.dynamic true is not supported; "
       "supported is false"},
      {{{"num_bits", 8}},
       "int-quantized",
       "d/f: tensor \"m.weight_packed\" is not a tensor of int-quantized, the "
       "format of its module"},
      {{},
       "pack-quantized",
       "d/f: tensor \"m.weight_zero_point\" has a zero point other than that "
       "of "
       "symmetric weights"},
      {{{"type", "complex"}},
       "pack-quantized",
       "c: q.config_groups.group_0.weights.type \"complex\" is not supported; "
       "supported are int and float"},
  };
  for (const auto &[weights, format, message] : cases) {
    const std::string text = config(format, weights).dump();
    EXPECT_EQ(messageOf([&] { tensors.make(kMethod, text); }), message);
  }
  json value = config("pack-quantized", {});
  value["config_groups"]["group_0"]["targets"] = {"re:(?=m)"};
  EXPECT_TRUE(messageOf([&] { tensors.make(kMethod, value.dump()); })
                  .starts_with("c: q.config_groups.group_0.targets[0] has the "
                               "regular expression \"(?=m)\""));
  value = config("pack-quantized", {});
  value["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  EXPECT_EQ(messageOf([&] { tensors.make(kMethod, value.dump()); }),
            "c: q.sparsity_config.format \"sparse-24-bitmask\" is not "
            "supported; supported is dense");
  value["sparsity_config"] = json::object();
  value["transform_config"] = {{"config_groups", {{"R1", json::object()}}}};
  EXPECT_EQ(messageOf([&] { tensors.make(kMethod, value.dump()); }),
            "c: q.transform_config.config_groups an object is not supported; "
            "supported are models without transforms");
  value = config("pack-quantized", {});
  value["moe_sparsity_config"] = {{"method", "prune"}};
  EXPECT_EQ(messageOf([&] { tensors.make(kMethod, value.dump()); }),
            "c: q.moe_sparsity_config an object is not supported; supported "
            "are models with all experts in each layer");
}

TEST(CompressedTensors, RefuseTensors) {
  const std::string text =
      config("pack-quantized", {{"symmetric", false}}).dump();
  const auto messageWith = [&](auto change) {
    FormTensors tensors = packed();
    change(tensors);
    return messageOf([&] { tensors.make(kMethod, text); });
  };
  const auto shape = [&](std::vector<int64_t> sizes) {
    return messageWith([&](FormTensors &tensors) {
      tensors.set("m.weight_shape", "I64", {std::ssize(sizes)}, sizes);
    });
  };
  EXPECT_EQ(shape({12, 56}),
            "d/f: tensor \"m.weight_packed\" has shape [12, 8] "
            "when [12, 7] is needed");
  EXPECT_EQ(shape({12, -64}), "d/f: tensor \"m.weight_shape\" has the size -64 "
                              "when 1 to 2^31 - 1 is needed");
  EXPECT_EQ(shape({int64_t{1} << 62, 4}),
            "d/f: tensor \"m.weight_shape\" has the size 4611686018427387904 "
            "when 1 to 2^31 - 1 is needed");
  EXPECT_EQ(shape({768}), "d/f: tensor \"m.weight_shape\" has shape [1] when "
                          "[2] is needed");
  EXPECT_EQ(messageWith([](FormTensors &t) { t.erase("m.weight_zero_point"); }),
            "d/f: tensor \"m.weight_packed\" is asymmetric but has no "
            "weight_zero_point");
  EXPECT_EQ(messageWith([](FormTensors &t) {
              t.set("m.weight_zero_point", "I32", {1, 2},
                    std::vector<int32_t>(2));
            }),
            "d/f: tensor \"m.weight_zero_point\" has shape [1, 2] when [2, 2] "
            "is needed");
  EXPECT_EQ(messageWith([](FormTensors &t) {
              t.set("m.weight_scale", "F32", {12, 0}, std::vector<float>());
            }),
            "d/f: tensor \"m.weight_scale\" has shape [12, 0] when [12, 2] is "
            "needed");
  EXPECT_EQ(
      messageWith([](FormTensors &t) {
        t.set("m.weight_scale", "I32", {12, 2}, std::vector<int>(24));
      }),
      "d/f: tensor \"m.weight_scale\" has dtype I32 when F32, F16 or BF16 "
      "is needed");
  EXPECT_EQ(messageWith([](FormTensors &t) {
              t.set("m.weight_packed", "F32", {12, 8}, std::vector<float>(96));
            }),
            "d/f: tensor \"m.weight_packed\" has dtype F32 when I32 is needed");
}
