//===- ExpertAdaptersTest.cpp - Adapters of experts -----------------------===//

#include "AdapterFiles.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kExperts = 7, kHidden = 96, kWidth = 64, kRank = 2;
constexpr float kScale = 2;

/// What the values of a factor belong to.
using FactorFn = std::function<float(int64_t expert, int64_t row, int64_t i)>;

std::filesystem::path checkpoint(const std::string &name) {
  return inputs() / "checkpoints" / name;
}

/// `base` with an update of each of its experts.
std::vector<float> updated(std::vector<float> base, int64_t outputs, int64_t k,
                           const FactorFn &left, const FactorFn &right) {
  for (int64_t expert = 0; expert < kExperts; ++expert)
    for (int64_t row = 0; row < outputs; ++row)
      for (int64_t i = 0; i < k; ++i) {
        double sum = 0;
        for (int64_t rank = 0; rank < kRank; ++rank)
          sum +=
              double{left(expert, row, rank)} * double{right(expert, rank, i)};
        float &value =
            base[static_cast<size_t>((expert * outputs + row) * k + i)];
        value = static_cast<float>(value + kScale * sum);
      }
  return base;
}

/// A factor of each expert in a tensor [experts, rows, columns].
FactorFn stackedFactor(const Values &values, int64_t rows, int64_t columns) {
  return [=](int64_t expert, int64_t row, int64_t i) {
    return values
        .values[static_cast<size_t>((expert * rows + row) * columns + i)];
  };
}

/// PEFT's left factor, [rows, rank * experts].
FactorFn peftLeft(const Values &values, int64_t firstRow) {
  return [=](int64_t expert, int64_t row, int64_t rank) {
    return values.values[static_cast<size_t>(
        ((firstRow + row) * kRank + rank) * kExperts + expert)];
  };
}

std::string expertsOf(const std::string &name) {
  return "model.layers.1.mlp.experts." + name + ".weight";
}

std::vector<float> before(const std::string &model, const std::string &name) {
  return Adapted(checkpoint(model), {}).values(expertsOf(name));
}
} // namespace

/// A model has a tensor for each expert (qwen3-moe) or for all of them.
TEST(ExpertAdapters, UpdateParametersOfPeft) {
  const std::string peft = "base_model.model.model.layers.1.mlp.experts.";
  const Values a = random({kExperts * kRank, kHidden}, 1),
               b = random({2 * kWidth, kRank * kExperts}, 2),
               downA = random({kExperts * kRank, kWidth}, 3),
               downB = random({kHidden, kRank * kExperts}, 4);
  PeftFiles adapter;
  adapter.config["target_parameters"] = {"mlp.experts.gate_up_proj",
                                         "mlp.experts.down_proj"};
  adapter.tensors = {{peft + "base_layer.lora_A.weight", a},
                     {peft + "base_layer.lora_B.weight", b},
                     {peft + "lora_A.weight", downA},
                     {peft + "lora_B.weight", downB}};
  TempDir dir;
  write(dir, adapter);
  const std::string model = "qwen3-moe-bf16";
  const Adapted after(checkpoint(model), {{dir.path()}});
  const FactorFn right = stackedFactor(a, kRank, kHidden);
  EXPECT_EQ(after.values(expertsOf("gate_proj")),
            updated(before(model, "gate_proj"), kWidth, kHidden, peftLeft(b, 0),
                    right));
  EXPECT_EQ(after.values(expertsOf("up_proj")),
            updated(before(model, "up_proj"), kWidth, kHidden,
                    peftLeft(b, kWidth), right));
  EXPECT_EQ(after.values(expertsOf("down_proj")),
            updated(before(model, "down_proj"), kHidden, kWidth,
                    peftLeft(downB, 0), stackedFactor(downA, kRank, kWidth)));

  // One parameter alone has no wrapper inside.
  adapter.config["target_parameters"] = {"mlp.experts.gate_up_proj"};
  adapter.tensors = {{peft + "lora_A.weight", a}, {peft + "lora_B.weight", b}};
  const TempDir other;
  write(other, adapter);
  const Adapted up(checkpoint(model), {{other.path()}});
  EXPECT_EQ(up.values(expertsOf("up_proj")),
            after.values(expertsOf("up_proj")));
  EXPECT_EQ(up.values(expertsOf("down_proj")), before(model, "down_proj"));
}

TEST(ExpertAdapters, UpdateTensorsOfAllExperts) {
  constexpr int64_t count = 9, width = 32;
  const std::string peft =
      "base_model.model.model.language_model.layers.1.mlp.experts.";
  PeftFiles adapter;
  adapter.config["target_parameters"] = {"mlp.experts.gate_up_proj"};
  Values b = {{2 * width, kRank * count}, {}};
  b.values.resize(static_cast<size_t>(2 * width * kRank * count));
  // Output 3 of up, of expert 4.
  b.values[static_cast<size_t>(((width + 3) * kRank + 1) * count + 4)] = 1;
  const Values a = random({count * kRank, kHidden}, 5);
  adapter.tensors = {{peft + "lora_A.weight", a}, {peft + "lora_B.weight", b}};
  TempDir dir;
  write(dir, adapter);
  const std::string model = "qwen3_5-moe-bf16";
  const Adapted after(checkpoint(model), {{dir.path()}});
  std::vector<float> needed = before(model, "up_proj");
  for (int64_t i = 0; i < kHidden; ++i) {
    float &value = needed[static_cast<size_t>((4 * width + 3) * kHidden + i)];
    value = static_cast<float>(
        value +
        double{kScale} *
            double{
                a.values[static_cast<size_t>((4 * kRank + 1) * kHidden + i)]});
  }
  EXPECT_EQ(after.values(expertsOf("up_proj")), needed);
  EXPECT_EQ(after.values(expertsOf("gate_proj")), before(model, "gate_proj"));
}

TEST(ExpertAdapters, UpdateSwitchesOfMlx) {
  const Values a = random({kExperts * kRank, kWidth}, 6),
               b = random({kExperts, kHidden, kRank}, 7);
  const std::string mlx = "model.layers.1.mlp.switch_mlp.down_proj";
  TempDir dir;
  dir.write("adapter_config.json",
            R"({"lora_parameters": {"rank": 2, "scale": 2}})");
  writeTensors(dir, "adapters.safetensors",
               {{mlx + ".lora_a", a}, {mlx + ".lora_b", b}});
  const std::string model = "qwen3-moe-bf16";
  EXPECT_EQ(
      Adapted(checkpoint(model), {{dir.path()}}).values(expertsOf("down_proj")),
      updated(before(model, "down_proj"), kHidden, kWidth,
              stackedFactor(b, kHidden, kRank),
              stackedFactor(a, kRank, kWidth)));
}

TEST(ExpertAdapters, UpdateEachExpert) {
  const std::string name = "model.layers.1.mlp.experts.4.up_proj";
  PeftFiles adapter;
  const Values a = random({kRank, kHidden}, 8), b = random({kWidth, kRank}, 9);
  adapter.tensors = {{"base_model.model." + name + ".lora_A.weight", a},
                     {"base_model.model." + name + ".lora_B.weight", b}};
  TempDir dir;
  write(dir, adapter);
  const std::string model = "qwen3-moe-bf16";
  const auto ofFour = [](const Values &values, int64_t columns) {
    return [=](int64_t expert, int64_t row, int64_t i) {
      return expert == 4 ? values.values[static_cast<size_t>(row * columns + i)]
                         : 0;
    };
  };
  EXPECT_EQ(
      Adapted(checkpoint(model), {{dir.path()}}).values(expertsOf("up_proj")),
      updated(before(model, "up_proj"), kWidth, kHidden, ofFour(b, kRank),
              ofFour(a, kHidden)));
}

TEST(ExpertAdapters, RefuseOtherShapes) {
  const std::string peft = "base_model.model.model.layers.1.mlp.experts.";
  const auto errorWith = [&](const std::vector<int64_t> &a,
                             const std::vector<int64_t> &b,
                             const nlohmann::json &more) {
    PeftFiles adapter;
    adapter.config["target_parameters"] = {"mlp.experts.down_proj"};
    if (!more.is_null())
      adapter.config.update(more);
    adapter.tensors = {{peft + "lora_A.weight", random(a, 1)},
                       {peft + "lora_B.weight", random(b, 2)}};
    TempDir dir;
    write(dir, adapter);
    std::string message = messageOf(
        [&] { Adapted(checkpoint("qwen3-moe-bf16"), {{dir.path()}}); });
    return message.substr(message.find(": ") + 2);
  };
  const std::string name = "tensor \"" + peft + "lora_";
  EXPECT_EQ(errorWith({13, 64}, {96, 14}, {}),
            name + "A.weight\" has shape [13, 64] when rows for each of 7 "
                   "experts are needed");
  EXPECT_EQ(errorWith({14, 96}, {96, 14}, {}),
            name + "A.weight\" has shape [14, 96] when [14, 64] is needed");
  EXPECT_EQ(errorWith({14, 64}, {64, 14}, {}),
            name + "B.weight\" has shape [64, 14] when [96, 14] is needed");
  EXPECT_EQ(errorWith({14, 64}, {96, 14}, {{"use_dora", true}}),
            name + "A.weight\" is of experts, where DoRA is not supported");
}
