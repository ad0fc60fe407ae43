//===- FormatPlanTest.cpp - A format and a quantizer for each matrix ------===//

#include "qwen/Compiler/FormatPlan.h"

#include "TempDir.h"
#include "qwen/Compiler/Inspect.h"
#include "qwen/Support/MemoryFile.h"
#include "qwen/Transforms/FusedProducts.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace qwen;

static const std::filesystem::path kInputs =
    std::filesystem::path(QWEN_SOURCE_DIR) / "test/Inputs";

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

static constexpr char kModule[] = R"(
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"m">
qwen.weight @q : tensor<64x64xf32> from #qwen.source<"m">
qwen.weight @whole : tensor<64x256xf32> from #qwen.source<"m", keeps = <q5_0>>
qwen.weight @adapted : tensor<64x256xf32> from #qwen.source<"m", nearest = <q4_k>>
qwen.weight @exact : tensor<64x256xf32> from #qwen.source<"m", keeps = <q4_k>> exact
qwen.weight @norm : tensor<64xbf16> from #qwen.source<"m">
)";

/// The formats of kModule.
static MatrixFormats formatsOf(const WeightChoice &choice,
                               const std::vector<std::string> &rules = {}) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  loadDialects(context);
  const auto module =
      mlir::parseSourceString<mlir::ModuleOp>(kModule, &context);
  return formatsByRules(*module, choice, rules);
}

using enum WeightFormat;

TEST(FormatPlan, RulesGiveFormatsByName) {
  EXPECT_EQ(
      formatsOf(Q8_0),
      (MatrixFormats{
          {"adapted", Q8_0}, {"embed", Q8_0}, {"q", Q8_0}, {"whole", Q8_0}}));
  // Those of the checkpoint, or the nearest.
  const MatrixFormats kept = {
      {"adapted", Q4_K}, {"embed", BF16}, {"q", F32}, {"whole", Q5_0}};
  EXPECT_EQ(formatsOf(KeepFormats()), kept);
  EXPECT_EQ(formatsOf(Q4_0, {".=keep"}), kept);
  // The last rule that matches wins, whatever the rules before it say.
  const MatrixFormats mixed = {
      {"adapted", F32}, {"embed", BF16}, {"q", Q4_0}, {"whole", F32}};
  EXPECT_EQ(formatsOf(Q8_0, {".=f32", "q=q4_0", "^em.*d=bf16"}), mixed);
  EXPECT_EQ(formatsOf(F32, {"q|embed=q6_k", "^q=q4_0", "embed=bf16"}), mixed);
  // An exact matrix is one of the checkpoint.
  EXPECT_EQ(formatsOf(Q8_0, {"exact=q4_0"}), formatsOf(Q8_0));
}

TEST(FormatPlan, RulesAreChecked) {
  const auto errorOf = [](const std::string &rule) {
    return test::messageOf([&] { formatsOf(Q4_0, {"q=q4_0", rule}); });
  };
  EXPECT_EQ(errorOf("down_proj"),
            "--tensor-weights 'down_proj' has no format when 'REGEX=FORMAT' is "
            "needed");
  EXPECT_TRUE(errorOf("q=q9").starts_with(
      "--tensor-weights 'q=q9' names format 'q9' when keep, f32, bf16, "));
  EXPECT_EQ(errorOf("q[=q8_0"),
            "--tensor-weights 'q[=q8_0' has the regular expression \"q[\", "
            "which RE2 does not read (missing ]: [); look-around and "
            "back-references are not supported");
  // A vector has no format.
  EXPECT_EQ(errorOf("norm=f32"),
            "--tensor-weights 'norm=f32' matches no matrix of the checkpoint; "
            "qwen-opt CHECKPOINT --emit=graph prints their names");
}

//===----------------------------------------------------------------------===//
// Plans by name
//===----------------------------------------------------------------------===//

/// The text of the plan of `options`.
static std::string planOf(const std::filesystem::path &checkpoint,
                          const CompileOptions &options) {
  return inspectCheckpoint(checkpoint, options).compiled.plan;
}

/// "FORMAT QUANTIZER" of each matrix of a checkpoint of test/Inputs.
static std::map<std::string, std::string>
choicesOf(const std::string &name, const CompileOptions &options = {}) {
  const nlohmann::json plan =
      nlohmann::json::parse(planOf(kInputs / name, options));
  std::map<std::string, std::string> choices;
  for (const auto &[matrix, choice] : plan["matrices"].items())
    choices[matrix] = choice["format"].get<std::string>() + " " +
                      choice.value("quantizer", "none");
  return choices;
}

TEST(FormatPlan, FloatsHaveThePlanOfTheirHiddenSize) {
  // A tied embedding is the head.
  const std::map<std::string, std::string> whole =
      choicesOf("checkpoints/base-qwen3");
  EXPECT_EQ(whole.at("model.embed_tokens.weight"), "q5_k search");
  EXPECT_EQ(whole.at("model.layers.0.self_attn.q_proj.weight"), "q5_k search");
  EXPECT_EQ(whole.at("model.layers.1.self_attn.k_proj.weight"), "q6_k search");
  EXPECT_EQ(whole.at("model.layers.1.self_attn.v_proj.weight"), "q6_k search");
  EXPECT_EQ(whole.at("model.layers.1.mlp.down_proj.weight"), "q5_k search");
  EXPECT_EQ(choicesOf("checkpoints/base-qwen3", {.weights = WeightPlan::Mixed}),
            whole);
  // 128 values.
  const std::map<std::string, std::string> odd =
      choicesOf("checkpoints/qwen3-untied-f32");
  EXPECT_EQ(odd.at("model.embed_tokens.weight"), "q5_0 search");
  EXPECT_EQ(odd.at("lm_head.weight"), "q6_k search");
  EXPECT_EQ(odd.at("model.layers.0.self_attn.q_proj.weight"), "q5_0 search");
  EXPECT_EQ(odd.at("model.layers.0.self_attn.v_proj.weight"), "q8_0 rtn");
  EXPECT_EQ(odd.at("model.layers.0.mlp.down_proj.weight"), "q6_k search");
}

namespace {
/// The formats that a plan gives a model of so many layers, whose products have
/// 256 outputs.
class LayersOfPlan {
public:
  LayersOfPlan(WeightPlan plan, int64_t layers, int64_t k) : layers(layers) {
    loadDialects(context);
    std::string text;
    for (int64_t i = 0; i < layers; ++i)
      for (const char *matrix : {"self_attn.v_proj", "mlp.down_proj"})
        text += "qwen.weight @model.layers." + std::to_string(i) + "." +
                matrix + ".weight : tensor<256x" + std::to_string(k) +
                "xf32> from #qwen.source<\"m\">\n";
    formats = formatsByRules(
        *mlir::parseSourceString<mlir::ModuleOp>(text, &context), plan, {});
  }

  /// The numbers of the layers whose matrix has a format.
  std::vector<int64_t> with(WeightFormat format, const std::string &matrix) {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < layers; ++i)
      if (formats.at("model.layers." + std::to_string(i) + "." + matrix +
                     ".weight") == format)
        numbers.push_back(i);
    return numbers;
  }

private:
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  const int64_t layers;
  MatrixFormats formats;
};
} // namespace

TEST(FormatPlan, MixturesFollowTheLayersOfLlama) {
  using Numbers = std::vector<int64_t>;
  const std::string v = "self_attn.v_proj", down = "mlp.down_proj";
  const Numbers all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Numbers more = {0, 1, 4, 7, 10, 13, 14, 15};
  LayersOfPlan medium(WeightPlan::MixQ4_K_M, 16, 256);
  EXPECT_EQ(medium.with(Q6_K, v), more);
  EXPECT_EQ(medium.with(Q6_K, down), more);
  EXPECT_EQ(medium.with(Q4_K, v).size(), 8u);
  LayersOfPlan small(WeightPlan::MixQ4_K_S, 16, 256);
  EXPECT_EQ(small.with(Q5_K, v), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(small.with(Q5_K, down), (Numbers{0, 1}));
  EXPECT_EQ(small.with(Q4_K, down).size(), 14u);
  // Rows that are no multiple of 256 values.
  LayersOfPlan odd(WeightPlan::MixQ5_K_M, 16, 320);
  EXPECT_EQ(odd.with(Q8_0, down), more);
  EXPECT_EQ(odd.with(Q5_M_32, down).size(), 8u);
  EXPECT_EQ(LayersOfPlan(WeightPlan::MixIQ4_XS, 16, 320).with(Q5_M_32, down),
            (Numbers{0, 1}));
  EXPECT_EQ(LayersOfPlan(WeightPlan::MixQ5_K_S, 16, 256).with(Q5_K, v), all);
  // Eight heads of a model with 80 layers share v.
  EXPECT_EQ(LayersOfPlan(WeightPlan::MixQ4_K_M, 80, 256).with(Q4_K, v),
            Numbers());
}

TEST(FormatPlan, MixturesFollowTheShapesOfLlama) {
  // Four query heads share v.
  std::map<std::string, std::string> choices =
      choicesOf("checkpoints/base-qwen2", {.weights = WeightPlan::MixIQ4_XS});
  EXPECT_EQ(choices.at("lm_head.weight"), "q6_k search");
  EXPECT_EQ(choices.at("model.embed_tokens.weight"), "nl4_xs rtn");
  EXPECT_EQ(choices.at("model.layers.0.self_attn.q_proj.weight"), "nl4_xs rtn");
  EXPECT_EQ(choices.at("model.layers.0.self_attn.v_proj.weight"),
            "q5_k search");
  // Two heads do. A tied embedding is the head.
  choices =
      choicesOf("checkpoints/base-qwen3", {.weights = WeightPlan::MixIQ4_XS});
  EXPECT_EQ(choices.at("model.embed_tokens.weight"), "q6_k search");
  EXPECT_EQ(choices.at("model.layers.0.self_attn.v_proj.weight"), "nl4_xs rtn");
  // Inputs of 64 values.
  choices = choicesOf("checkpoints/qwen3_5-text-f32",
                      {.weights = WeightPlan::MixQ4_K_M});
  EXPECT_EQ(choices.at("model.layers.0.linear_attn.in_proj_z.weight"),
            "q5_0 search");
  EXPECT_EQ(choices.at("model.layers.4.mlp.down_proj.weight"), "q8_0 rtn");
}

TEST(FormatPlan, OptionsChangeThePlanOfFloats) {
  const char *name = "checkpoints/base-qwen3";
  // A rule of the command line takes its own format, which is rounded.
  CompileOptions options = {.tensorWeights = {"down_proj=q4_0"}};
  std::map<std::string, std::string> expected = choicesOf(name);
  for (const char *layer : {"0", "1"})
    expected[std::string("model.layers.") + layer + ".mlp.down_proj.weight"] =
        "q4_0 rtn";
  EXPECT_EQ(choicesOf(name, options), expected);
  // A quantizer is for all matrices.
  for (auto &[matrix, choice] : expected = choicesOf(name))
    choice = choice.substr(0, choice.find(' ')) + " rtn";
  options = {.quantizer = Quantizer::Rounding};
  EXPECT_EQ(choicesOf(name, options), expected);
}

TEST(FormatPlan, IntegersKeepTheirFormats) {
  for (const char *name :
       {"gguf/qwen3-q4_k_m/model.gguf", "checkpoints/gptq-qwen2-int4-g128",
        "checkpoints/qat-qwen3-grid32"})
    for (const auto &[matrix, choice] : choicesOf(name))
      EXPECT_TRUE(choice.ends_with(" keep") || choice.ends_with(" none"))
          << name << " " << matrix << " " << choice;
}

//===----------------------------------------------------------------------===//
// Plan files
//===----------------------------------------------------------------------===//

/// A compiled file and what the manifest says of its quantizers.
struct Compiled {
  std::string bytes, quantizers;
};

static Compiled compileWith(const std::filesystem::path &checkpoint,
                            CompileOptions options) {
  options.maxTokens = 16;
  options.maxRows = 1;
  MemoryFile file;
  const CompileSummary summary = compileModel(checkpoint, file, options);
  return {file.contents(), summary.quantization.quantizer};
}

namespace {
/// Options with a plan file.
struct PlanFile {
  explicit PlanFile(const std::string &text) {
    dir.write("plan.json", text);
    options.plan = dir.path() / "plan.json";
  }

  const test::TempDir dir;
  CompileOptions options;
};
} // namespace

TEST(FormatPlan, AFileMakesTheSameModel) {
  const struct {
    const char *checkpoint;
    CompileOptions options;
    bool compiles = false;
  } cases[] = {
      {"checkpoints/qwen2-tied-f32",
       {.weights = WeightFormat::Q4_0,
        .tensorWeights = {"v_proj=q8_0", "^model.layers.1.=f32",
                          "gate_proj=q6_k"}},
       true},
      // f32 in the cache, and no quantizer.
      {"checkpoints/qwen2-tied-f32", {.weights = F32}},
      // Rotated.
      {"checkpoints/qwen3-tied-bf16", {.weights = Q8_0}},
      // Integers of the file, and integers that its floats were made of.
      {"gguf/qwen3-q4_k_m/model.gguf", {}},
      {"checkpoints/qat-qwen3-grid32", {}, true},
      {"checkpoints/qat-qwen3-grid32", {.weights = Q4_0}},
      // Formats of experts and exact routers.
      {"checkpoints/qwen3-moe-bf16",
       {.weights = Q4_0, .tensorWeights = {"0.mlp.experts.up_proj=bf16"}}},
  };
  for (const auto &[name, options, compiles] : cases) {
    const std::filesystem::path checkpoint = kInputs / name;
    const std::string plan = planOf(checkpoint, options);
    const PlanFile file(plan);
    EXPECT_EQ(planOf(checkpoint, file.options), plan);
    EXPECT_EQ(emit(checkpoint, EmittedStage::Quantized, file.options),
              emit(checkpoint, EmittedStage::Quantized, options))
        << name << plan;
    if (compiles)
      EXPECT_TRUE(compileWith(checkpoint, file.options).bytes ==
                  compileWith(checkpoint, options).bytes)
          << name << plan;
  }
}

TEST(FormatPlan, MatricesHaveQuantizersOfTheirOwn) {
  const std::filesystem::path checkpoint =
      kInputs / "checkpoints/qwen2-tied-f32";
  nlohmann::json plan =
      nlohmann::json::parse(planOf(checkpoint, {.weights = Q4_0}));
  for (auto &[name, matrix] : plan["matrices"].items())
    if (name.find("layers.0") != name.npos)
      matrix["quantizer"] = "search";
  const Compiled mixed = compileWith(checkpoint, PlanFile(plan.dump()).options);
  EXPECT_EQ(mixed.quantizers, "rtn, search");
  for (auto &matrix : plan["matrices"])
    matrix["quantizer"] = "search";
  const Compiled searched =
      compileWith(checkpoint, PlanFile(plan.dump()).options);
  EXPECT_EQ(searched.quantizers, "search");
  EXPECT_FALSE(mixed.bytes == searched.bytes);
  EXPECT_TRUE(
      searched.bytes ==
      compileWith(checkpoint, {.weights = Q4_0, .quantizer = Quantizer::Search})
          .bytes);
}

TEST(FormatPlan, LayersHaveFormatsOfKeysAndValues) {
  const std::filesystem::path checkpoint =
      kInputs / "checkpoints/qwen2-tied-f32";
  const std::string uniform = planOf(checkpoint, {.weights = Q4_0});
  nlohmann::json plan = nlohmann::json::parse(uniform);
  plan["kv_layers"]["1"] = "f32";
  PlanFile file(plan.dump());
  const CompileSummary mixed =
      inspectCheckpoint(checkpoint, file.options).compiled;
  EXPECT_EQ(mixed.kv, "f32 in 1 layer, q8 in 1 layer");
  EXPECT_EQ(nlohmann::json::parse(mixed.plan), plan);
  EXPECT_EQ(planOf(checkpoint, PlanFile(mixed.plan).options), mixed.plan);
  // An option names one for all.
  file.options.kv = KvFormat::Q8;
  EXPECT_EQ(planOf(checkpoint, file.options), uniform);
}

TEST(FormatPlan, MatricesShareProducts) {
  using Names = std::vector<std::string>;
  const auto fused = [](const char *checkpoint, const Names &names) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    loadDialects(context);
    const auto module = mlir::parseSourceString<mlir::ModuleOp>(
        emit(kInputs / "checkpoints" / checkpoint, EmittedStage::Graph),
        &context);
    const std::vector<Names> products = fusedMatrices(*module);
    const auto product = llvm::find_if(products, [&](const Names &each) {
      return llvm::is_contained(each, names[0]);
    });
    EXPECT_EQ(product == products.end() ? Names{names[0]} : *product, names)
        << checkpoint;
  };
  const std::string layer = "model.layers.1.";
  const Names heads = {layer + "self_attn.q_proj.weight",
                       layer + "self_attn.k_proj.weight",
                       layer + "self_attn.v_proj.weight"};
  // With biases, and without.
  fused("qwen2-tied-f32", heads);
  fused("qwen3-tied-bf16", heads);
  fused("qwen2-tied-f32",
        {layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"});
  fused("qwen3-moe-bf16", {layer + "mlp.experts.gate_proj.weight",
                           layer + "mlp.experts.up_proj.weight"});
  for (const char *alone : {"self_attn.o_proj", "mlp.down_proj"})
    fused("qwen2-tied-f32", {layer + alone + ".weight"});
  fused("qwen2-tied-f32", {"model.embed_tokens.weight"});
}

/// The caller's choice of layers is that of an option, on one compile.
TEST(FormatPlan, LayersAreChosenBeforeFormats) {
  const std::filesystem::path checkpoint =
      kInputs / "checkpoints/qwen2-tied-f32";
  const Pruning pruning = {"layers", {0}};
  CompileOptions options = {
      .weights = Q4_0, .pruning = pruning, .maxTokens = 16, .maxRows = 1};
  MemoryFile byOption, byCaller;
  compileModel(checkpoint, byOption, options);
  options.pruning = {};
  size_t matrices = 0;
  compileModel(checkpoint, byCaller, options,
               {.chooseLayers = [&](const QuantizeInput &input) {
                 matrices = plannedMatrices(input.module).size();
                 EXPECT_TRUE(input.formats.empty());
                 return pruning;
               }});
  EXPECT_EQ(matrices, 15u);
  EXPECT_TRUE(byOption.contents() == byCaller.contents());
}
