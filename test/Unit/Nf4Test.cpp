//===- Nf4Test.cpp - The form of bitsandbytes nf4 -------------------------===//

#include "FormTensors.h"
#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static constexpr char kState[] = "m.weight.quant_state.bitsandbytes__nf4";

static void setState(FormTensors &tensors, const std::string &text) {
  tensors.set(kState, "U8", {std::ssize(text)},
              std::vector<char>(text.begin(), text.end()));
}

/// 3 outputs of 32 columns in blocks of 64: the codes of a pair are 2 and 5,
/// and number c of the table is c / 8.
static FormTensors plain() {
  FormTensors tensors;
  tensors.set("m.weight", "U8", {48, 1}, std::vector<uint8_t>(48, 0x25));
  std::vector<float> table(16);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<float>(i) / 8;
  tensors.set("m.weight.quant_map", "F32", {16}, table);
  tensors.set("m.weight.absmax", "F32", {2}, std::vector<float>{4, 0.1f});
  setState(tensors,
           R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 32]})");
  return tensors;
}

static FormTensors nested() {
  FormTensors tensors = plain();
  tensors.set("m.weight.absmax", "U8", {2}, std::vector<uint8_t>{3, 255});
  std::vector<float> table(256);
  table[3] = 0.3f;
  table[255] = 1;
  tensors.set("m.weight.nested_quant_map", "F32", {256}, table);
  tensors.set("m.weight.nested_absmax", "F32", {1}, std::vector<float>{0.7f});
  setState(tensors,
           R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 32],
               "nested_blocksize": 256, "nested_offset": 0.1})");
  return tensors;
}

TEST(Nf4, ReadsBlocksThatCrossOutputs) {
  const FormTensors tensors = plain();
  const WeightSourcePtr source = tensors.make("bitsandbytes", "{}");
  ASSERT_TRUE(source);
  EXPECT_EQ(source->form(), "nf4");
  EXPECT_EQ(source->keptFormat(), WeightFormat::Q8_0);
  EXPECT_EQ(source->shape(), (WeightShape{{3, 32}}));
  const std::vector<float> values = valuesOf(*source);
  // The high half first.
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[63], 2.5f);
  EXPECT_EQ(values[64], 0.25f * 0.1f);
  float last[32];
  source->read(2, 1, last);
  EXPECT_EQ(last[31], 0.625f * 0.1f);
}

TEST(Nf4, ReadsQuantizedScales) {
  const FormTensors tensors = nested();
  const std::vector<float> values =
      valuesOf(*tensors.make("bitsandbytes", "{}"));
  const float product = 0.3f * 0.7f;
  EXPECT_EQ(values[0], 0.25f * (product + 0.1f));
  EXPECT_EQ(values[95], 0.625f * (0.7f + 0.1f));
}

/// bitsandbytes quantizes the parameter of all experts as one tensor.
TEST(Nf4, ReadsAllExpertsOfALayer) {
  FormTensors tensors = plain();
  setState(tensors,
           R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 4, 8]})");
  const WeightSourcePtr source = tensors.make("bitsandbytes", "{}");
  EXPECT_EQ(source->shape(), (WeightShape{{3, 4, 8}}));
  const FormTensors matrix = plain();
  EXPECT_EQ(valuesOf(*source), valuesOf(*matrix.make("bitsandbytes", "{}")));
  setState(
      tensors,
      R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 2097152, 8]})");
  EXPECT_EQ(
      messageOf([&] { tensors.make("bitsandbytes", "{}"); }),
      "d/f: tensor \"m.weight.quant_state.bitsandbytes__nf4\": shape[1] is "
      "2097152 when an integer from 1 to 1048576 is needed");
}

/// bnb_4bit_quant_storage changes the type of the tensor, not its bytes.
TEST(Nf4, ReadsCodesOfAnyStorage) {
  const FormTensors bytes = plain();
  const std::vector<float> values = valuesOf(*bytes.make("bitsandbytes", "{}"));
  for (const auto &[type, count] :
       {std::pair("BF16", 24), std::pair("F16", 24), std::pair("F32", 12)}) {
    FormTensors tensors = plain();
    tensors.set("m.weight", type, {count, 1}, std::vector<uint8_t>(48, 0x25));
    EXPECT_EQ(valuesOf(*tensors.make("bitsandbytes", "{}")), values) << type;
    tensors.set(
        "m.weight", type, {count - 1, 1},
        std::vector<uint8_t>(48 - 48 / static_cast<size_t>(count), 0x25));
    const std::string shape = "[" + std::to_string(count) + ", 1]";
    EXPECT_EQ(messageOf([&] { tensors.make("bitsandbytes", "{}"); }),
              "d/f: tensor \"m.weight\" has shape [" +
                  std::to_string(count - 1) + ", 1] when " + shape +
                  " is needed");
  }
  // 15 bytes.
  FormTensors odd = plain();
  setState(odd, R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 10]})");
  odd.set("m.weight", "F32", {4, 1}, std::vector<uint8_t>(16));
  odd.set("m.weight.absmax", "F32", {1}, std::vector<float>{4});
  EXPECT_EQ(messageOf([&] { odd.make("bitsandbytes", "{}"); }),
            "d/f: tensor \"m.weight\" has 4 values when 15 bytes of codes are "
            "needed");
}

TEST(Nf4, RefusesOtherTensorsAndConfigurations) {
  const auto messageWith = [](FormTensors tensors, auto change,
                              const char *config = "{}") {
    change(tensors);
    return messageOf([&] { tensors.make("bitsandbytes", config); });
  };
  const auto stateMessage = [&](const std::string &text) {
    return messageWith(plain(), [&](FormTensors &t) { setState(t, text); });
  };
  const std::string begin =
      "d/f: tensor \"m.weight.quant_state.bitsandbytes__nf4\"";
  EXPECT_TRUE(
      stateMessage(R"({"quant_type": "nf4", "block)").starts_with(begin));
  EXPECT_EQ(
      stateMessage(
          R"({"quant_type": "nf4", "blocksize": 64, "shape": [1099511627776, 8]})"),
      begin +
          ": shape[0] is 1099511627776 when an integer from 1 to 2147483647 "
          "is needed");
  EXPECT_EQ(stateMessage(
                R"({"quant_type": "nf4", "blocksize": 64, "shape": [2, 2]})"),
            "d/f: tensor \"m.weight\" has shape [48, 1] when [2, 1] is needed");
  EXPECT_EQ(
      stateMessage(
          R"({"quant_type": "nf4", "blocksize": 0, "shape": [3, 32]})"),
      begin +
          ": blocksize is 0 when an integer from 1 to 2147483647 is needed");
  EXPECT_EQ(stateMessage(R"({"quant_type": "fp4"})"),
            begin + ": quant_type \"fp4\" is not supported; supported is "
                    "\"nf4\"");
  EXPECT_EQ(stateMessage(R"({"quant_type": "nf4"})"), begin + " has no shape");
  const auto unchanged = [](FormTensors &) {};
  EXPECT_EQ(messageWith(plain(), unchanged, R"({"load_in_8bit": true})"),
            "c: q.load_in_8bit true is not supported; supported is "
            "load_in_4bit with nf4");
  EXPECT_EQ(
      messageWith(plain(), unchanged, R"({"bnb_4bit_quant_type": "fp4"})"),
      "c: q.bnb_4bit_quant_type \"fp4\" is not supported; supported is "
      "\"nf4\"");
  EXPECT_EQ(messageWith(plain(),
                        [](FormTensors &t) {
                          t.set("m.weight.quant_map", "F32", {15},
                                std::vector<float>(15));
                        }),
            "d/f: tensor \"m.weight.quant_map\" has shape [15] when [16] is "
            "needed");
  EXPECT_EQ(messageWith(plain(),
                        [](FormTensors &t) {
                          t.set("m.weight.absmax", "F32", {1},
                                std::vector<float>(1));
                        }),
            "d/f: tensor \"m.weight.absmax\" has shape [1] when [2] is needed");
  EXPECT_EQ(
      messageWith(nested(),
                  [](FormTensors &t) { t.erase("m.weight.nested_absmax"); }),
      "d/f: tensor \"m.weight\" has quantized scales but no nested_absmax "
      "and nested_quant_map");
}
