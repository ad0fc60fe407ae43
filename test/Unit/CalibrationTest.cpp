//===- CalibrationTest.cpp - Integers that a text chooses -----------------===//
//
// Compiles models/stories with a few windows of text.
//
//===----------------------------------------------------------------------===//

#include "calibration/Calibration.h"
#include "calibration/PruneLayers.h"

#include "OpWithoutGradient.h"
#include "OverflowingGradients.h"
#include "Stories.h"
#include "TempDir.h"

#include "calibration/TextRun.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"
#include "qwen/Weights/Sources.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

using namespace qwen;
using namespace qwen::test;

namespace {
/// Tokens that need no tokenizer.
CalibrationText shortText() {
  CalibrationText text = {{}, 64, "0123"};
  for (int32_t i = 0; i < 4 * 64; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 4000 + 5);
  return text;
}

/// Ends a compile whose result is not needed.
struct Enough {};

/// Calls `take` with a calibrated model of q4_0, which `prepare` may change
/// before.
template <typename Take>
void calibrated(const std::string &checkpoint, const CalibrationText &text,
                const CalibrationOptions &options, const Take &take,
                Rotate rotate = Rotate::Auto,
                void (*prepare)(mlir::ModuleOp module) = nullptr) {
  MemoryFile file;
  try {
    compileModel(checkpoint, file,
                 {.weights = WeightFormat::Q4_0,
                  .quantizer = Quantizer::Gptq,
                  .rotate = rotate},
                 {.quantize = [&](const QuantizeInput &input) -> Quantization {
                   if (prepare)
                     prepare(input.module);
                   calibrate(input, text, options);
                   take(input);
                   throw Enough();
                 }});
  } catch (const Enough &) {
  }
}

/// All integers of a model, and their errors.
std::string integersOf(const QuantizeInput &input) {
  std::string integers;
  for (const auto &[name, format] : input.formats) {
    const WeightSourcePtr source = input.source(name);
    // No product reads the embedding of an untied model.
    if (source->kept(format, 0, 1) == 0)
      continue;
    std::vector<char> panel(
        static_cast<size_t>(panelBytes(format, source->shape().k())));
    numerics::EncodeError error;
    for (int64_t i = 0; i < source->shape().outputs(); ++i) {
      error += source->keep(format, i, 1, 0,
                            reinterpret_cast<uint8_t *>(panel.data()));
      integers.append(panel.begin(), panel.end());
    }
    integers += std::to_string(error.errors);
  }
  return integers;
}

/// The integers of models/stories, calibrated.
std::string calibrateStories(const CalibrationOptions &options,
                             const CalibrationText &text = shortText()) {
  std::string integers;
  calibrated(kStories, text, options,
             [&](const QuantizeInput &input) { integers = integersOf(input); });
  return integers;
}
} // namespace

/// Those of one thread, in memory, without saved sublayers.
static const std::string &expectedStories() {
  static const std::string expected = [] {
    std::vector<std::string> notes;
    std::string integers =
        calibrateStories({.threads = 1, .note = [&](const std::string &line) {
                            notes.push_back(line);
                          }});
    EXPECT_EQ(notes.size(), 2u);
    EXPECT_TRUE(notes[0].starts_with("calibration: 256 tokens; up to "))
        << notes[0];
    // Not of the head, which is the embedding.
    EXPECT_EQ(notes[1], "calibration: gradients weigh the tokens of all "
                        "matrices, and the outputs of 42 of 43");
    return integers;
  }();
  return expected;
}

TEST(Calibration, OptionsChangeNoBit) {
  const test::TempDir dir;
  std::vector<std::string> notes;
  const auto note = [&](const std::string &line) { notes.push_back(line); };
  // In a temporary file, with saved sublayers.
  const std::filesystem::path folder = dir.path() / "saved";
  uint64_t last = 0, total = 1;
  EXPECT_TRUE(calibrateStories({.memory = 0,
                                .folder = folder,
                                .threads = 3,
                                .note = note,
                                .progress = [&](uint64_t done, uint64_t all) {
                                  EXPECT_GE(done, last);
                                  last = done;
                                  total = all;
                                }}) == expectedStories());
  EXPECT_EQ(last, total);
  EXPECT_NE(notes.at(0).find("in a temporary file in"), std::string::npos);

  // What is finished is not computed again.
  notes.clear();
  EXPECT_TRUE(
      calibrateStories({.folder = folder, .threads = 2, .note = note}) ==
      expectedStories());
  EXPECT_NE(notes.at(2).find("13 of 13 steps were finished before"),
            std::string::npos);
  // What is damaged or of other inputs is.
  std::filesystem::resize_file(folder / "rows.qwencal", 99);
  notes.clear();
  CalibrationText other = shortText();
  EXPECT_TRUE(calibrateStories({.folder = folder, .note = note}) ==
              expectedStories());
  other.ids[3] = 77;
  EXPECT_THROW(calibrateStories({.folder = folder,
                                 .note = note,
                                 .progress =
                                     [](uint64_t, uint64_t) {
                                       throw std::runtime_error("begins");
                                     }},
                                other),
               Error);
  EXPECT_EQ(notes.size(), 4u);
  dir.write("saved/mine", "");
  removeSavedCalibration(folder);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(Calibration, GoesOnAfterAKill) {
  const test::TempDir dir;
  const std::filesystem::path folder = dir.path() / "saved";
  // Each run ends after a few more sublayers.
  struct Killed {};
  size_t runs = 0;
  for (bool isDone = false; !isDone && runs < 20; ++runs) {
    size_t calls = 0;
    try {
      EXPECT_TRUE(calibrateStories({.folder = folder,
                                    .threads = 4,
                                    .progress = [&](uint64_t, uint64_t) {
                                      if (++calls == 60)
                                        throw Killed();
                                    }}) == expectedStories());
      isDone = true;
    } catch (const Killed &) {
    }
  }
  EXPECT_GT(runs, 2u);
  EXPECT_LT(runs, 20u);
}

TEST(Calibration, HybridsAreCalibrated) {
  CalibrationText text = {{}, 32, "0123"};
  for (int32_t i = 0; i < 4 * 32; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 250);
  size_t matrices = 0;
  std::vector<std::string> notes;
  calibrated(QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3_5-text-f32", text,
             {.note = [&](const std::string &line) { notes.push_back(line); }},
             [&](const QuantizeInput &input) {
               for (const auto &[name, format] : input.formats)
                 matrices += input.source(name)->keptFormat() == format;
               // No product reads the embedding of an untied model.
               EXPECT_EQ(matrices + 1, input.formats.size());
             });
  EXPECT_GT(matrices, 10u);
  ASSERT_EQ(notes.size(), 2u);
  // Not of the head.
  EXPECT_EQ(notes[1], "calibration: gradients weigh the tokens of all "
                      "matrices, and the outputs of 34 of 35");
}

TEST(Calibration, GradientsThatAreNotFiniteAreLeftOut) {
  CalibrationText text = {{}, 64, "0123"};
  for (int32_t i = 0; i < 4 * 64; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 300);
  std::vector<std::string> notes;
  MemoryFile file;
  const auto run = [&](const QuantizeInput &given) -> Quantization {
    QuantizeInput input = given;
    overflowGradients(input, "model.layers.1.self_attn.v_proj.weight",
                      "model.layers.1.self_attn.o_proj.weight");
    calibrate(input, text, {.note = [&](const std::string &line) {
                notes.push_back(line);
              }});
    throw Enough();
  };
  EXPECT_THROW(compileModel(QWEN_SOURCE_DIR
                            "/test/Inputs/checkpoints/qwen3-untied-f32",
                            file,
                            {.weights = WeightFormat::Q4_0,
                             .quantizer = Quantizer::Gptq,
                             .rotate = Rotate::Off},
                            {.quantize = run}),
               Enough);
  // The sublayers before it have no gradients, either.
  ASSERT_EQ(notes.size(), 5u);
  for (size_t i = 2; i < 5; ++i)
    EXPECT_EQ(notes[i],
              "calibration: the gradient of " +
                  std::string(i == 2   ? "layers.1.self_attn.residual"
                              : i == 3 ? "layers.0.mlp.residual"
                                       : "layers.0.self_attn.residual") +
                  " is not finite, so that all of its tokens and outputs count "
                  "the same");
}

namespace {
constexpr char kExperts[] =
    QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3-moe-f32";

CalibrationText textForExperts() {
  CalibrationText text = {{}, 64, "0123"};
  for (int32_t i = 0; i < 8 * 64; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 317);
  return text;
}

/// The integers of `count` outputs from `first` on.
std::vector<uint8_t> integersOf(const WeightSource &source, int64_t first,
                                int64_t count) {
  const int64_t bytes = panelBytes(WeightFormat::Q4_0, source.shape().k());
  std::vector<uint8_t> panels(static_cast<size_t>(count * bytes));
  for (int64_t i = 0; i < count; ++i)
    source.keep(WeightFormat::Q4_0, first + i, 1, 0, panels.data() + i * bytes);
  return panels;
}

/// The moments of each expert of the first layer, by input: gate and up, down.
std::vector<std::vector<InputMoments>>
expertMoments(const ImportedModel &model, const CalibrationText &text) {
  const SublayerChain chain = divide(programsOf(*model.module).front());
  ThreadPool pool(1);
  TextRun run(*model.module, model.checkpoint->weights(), text.ids, text.window,
              pool);
  run.embed(chain.embedding);
  run.run(chain.sublayers[0], [](const ReadRows &) {});
  std::vector<std::vector<InputMoments>> moments(2);
  for (std::vector<InputMoments> &each : moments)
    for (int expert = 0; expert < 8; ++expert)
      each.emplace_back(64);
  run.run(chain.sublayers[1], [&](const ReadRows &read) {
    if (read.input != 0)
      moments[read.input - 1][read.expert].add(read.rows.data(),
                                               std::ssize(read.tokens), 64, 1);
  });
  return moments;
}
} // namespace

// Without gradients, which would weigh the tokens.
TEST(Calibration, ExpertsAreQuantizedByTheirOwnTokens) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model = importCheckpoint(kExperts, context);
  const CalibrationText text = textForExperts();
  const auto moments = expertMoments(model, text);
  std::vector<std::string> notes;
  const CalibrationOptions options = {
      .note = [&](const std::string &line) { notes.push_back(line); }};
  size_t rare = 0;
  calibrated(
      kExperts, text, options,
      [&](const QuantizeInput &input) {
        for (const auto &[number, names] :
             {std::pair<size_t, std::vector<const char *>>{
                  0, {"gate_proj.weight", "up_proj.weight"}},
              {1, {"down_proj.weight"}}})
          for (const char *end : names) {
            const std::string name =
                std::string("model.layers.0.mlp.experts.") + end;
            const WeightSourcePtr floats =
                model.checkpoint->weights().find(name)->source;
            for (size_t expert = 0; expert < 8; ++expert) {
              const InputMoments &own = moments[number][expert];
              const bool isRare = own.tokens() < kLeastExpertTokens;
              rare += isRare;
              const auto first = static_cast<int64_t>(expert) * 64;
              const WeightSourcePtr part =
                  makeOutputs(floats, outputsFrom(first, 64));
              const InputFactor factor(own, kDamping, 32, 1);
              const WeightSourcePtr expected =
                  isRare ? quantize(Quantizer::Search, part, WeightFormat::Q4_0)
                         : quantize(Quantizer::Gptq, part, WeightFormat::Q4_0,
                                    {&factor});
              EXPECT_TRUE(integersOf(*input.source(name), first, 64) ==
                          integersOf(*expected, 0, 64))
                  << name << ", expert " << expert;
            }
          }
      },
      Rotate::Off, addOpWithoutGradient);
  // Both kinds were seen.
  EXPECT_GT(rare, 0u);
  EXPECT_LT(rare, 24u);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[2].find(" experts were chosen by fewer than 128 tokens"),
            std::string::npos)
      << notes[2];
}

TEST(Calibration, LayersWithExpertsArePruned) {
  MemoryFile file;
  const CalibrationText text = textForExperts();
  const auto prune = [&](const QuantizeInput &input) -> Quantization {
    const PruningReport report = pruneByInfluence(input, text, 1);
    EXPECT_EQ(report.scores.size(), 2u);
    const int64_t least = report.scores[0] <= report.scores[1] ? 0 : 1;
    EXPECT_EQ(report.layers, std::vector<int64_t>{least});
    EXPECT_GT(report.scores[static_cast<size_t>(least)], 0);
    // The logits of golden.safetensors have a mean loss of 12.61 for tokens
    // that do not depend on them.
    EXPECT_NEAR(std::log(report.perplexityBefore), 12.61, 0.5);
    EXPECT_GT(report.divergence, 0);
    throw Enough();
  };
  EXPECT_THROW(compileModel(kExperts, file, {.weights = WeightFormat::Q4_0},
                            {.scaleChannels = prune}),
               Enough);
}

TEST(Calibration, SavedExpertsKeepTheirIntegers) {
  const test::TempDir dir;
  const CalibrationText text = textForExperts();
  std::vector<std::string> notes;
  std::string integers[4];
  for (unsigned run : {0, 1, 2, 3}) {
    CalibrationOptions options = {
        .threads = run + 1,
        .note = [&](const std::string &line) { notes.push_back(line); }};
    if (run == 1 || run == 2) {
      options.memory = 0;
      options.folder = dir.path() / "saved";
    }
    calibrated(
        kExperts, text, options,
        [&](const QuantizeInput &input) { integers[run] = integersOf(input); },
        Rotate::Auto, run == 3 ? addOpWithoutGradient : nullptr);
  }
  EXPECT_FALSE(integers[0].empty());
  EXPECT_TRUE(integers[0] == integers[1]);
  EXPECT_TRUE(integers[0] == integers[2]);
  // Gradients say something else.
  EXPECT_TRUE(integers[0] != integers[3]);
  EXPECT_EQ(notes[1], "calibration: gradients weigh the tokens of all "
                      "matrices, and the outputs of 14 of 15");
}

namespace {
/// Values of weights, [outputs][K], by name.
class WeightValues {
public:
  explicit WeightValues(const QuantizeInput &input) {
    for (const auto &[name, entry] : input.weights.all()) {
      std::vector<float> &to = values[name];
      to.resize(static_cast<size_t>(entry.source->shape().values()));
      entry.source->read(0, entry.source->shape().outputs(), to.data());
      columns[name] = entry.source->shape().k();
    }
  }
  bool has(const std::string &name) const { return values.contains(name); }
  /// The value of a column of an output.
  double at(const std::string &name, int64_t output, int64_t column) const {
    return values.at(
        name)[static_cast<size_t>(output * columns.at(name) + column)];
  }
  int64_t outputs(const std::string &name) const {
    return std::ssize(values.at(name)) / columns.at(name);
  }
  int64_t k(const std::string &name) const { return columns.at(name); }

private:
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, int64_t> columns;
};

/// Output makerOf(column) of `maker` makes a column of `reader`. Checks that
/// the products of their values are `factor` times those before. Returns
/// whether a column changed.
template <typename MakerOf>
bool expectProducts(const WeightValues &before, const WeightValues &after,
                    const std::string &maker, const std::string &reader,
                    MakerOf makerOf, double factor) {
  bool changed = false;
  for (int64_t column = 0; column < before.k(reader); ++column)
    for (int64_t output = 0; output < before.outputs(reader); ++output) {
      const auto product = [&](const WeightValues &values) {
        return values.at(maker, makerOf(column), 0) *
               values.at(reader, output, column);
      };
      const double expected = factor * product(before);
      changed |=
          after.at(reader, output, column) != before.at(reader, output, column);
      EXPECT_NEAR(product(after), expected, 1e-6 * std::fabs(expected))
          << maker << " and " << reader << ", column " << column;
    }
  return changed;
}
} // namespace

static void expectScaled(const std::string &folder, int64_t shared,
                         int64_t headSize, std::vector<std::string> wanted) {
  CalibrationText text = {{}, 32, "0123"};
  for (int32_t i = 0; i < 4 * 32; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 250);
  std::set<std::string> changed;
  MemoryFile file;
  const auto check = [&](const QuantizeInput &input) -> Quantization {
    const WeightValues before(input);
    scaleChannels(input, text, 2);
    const WeightValues after(input);
    const auto same = [](int64_t column) { return column; };
    const auto ofHead = [&](int64_t column) {
      return column / headSize / shared * headSize + column % headSize;
    };
    for (int64_t layer = 0; layer < 4; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      const auto expect = [&](const char *maker, const char *reader,
                              const auto &makerOf, double factor) {
        if (before.has(at + maker) && before.has(at + reader) &&
            expectProducts(before, after, at + maker, at + reader, makerOf,
                           factor))
          changed.insert(reader);
      };
      for (const char *reader :
           {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
            "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight",
            "linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight"})
        expect("input_layernorm.weight", reader, same, 1);
      const std::string gate = at + "mlp.gate_proj.weight";
      if (!before.has(gate))
        continue;
      expect("post_attention_layernorm.weight", "mlp.gate_proj.weight", same,
             1);
      // The columns of up_proj have the scales of gate_proj's.
      expect("mlp.up_proj.weight", "mlp.down_proj.weight", same,
             after.at(gate, 0, 0) / before.at(gate, 0, 0));
      expect("self_attn.v_proj.bias", "self_attn.o_proj.weight", ofHead, 1);
    }
    throw Enough();
  };
  EXPECT_THROW(compileModel(folder, file, {.weights = WeightFormat::Q4_0},
                            {.scaleChannels = check}),
               Enough);
  for (const std::string &name : wanted)
    EXPECT_TRUE(changed.contains(name)) << name;
}

TEST(Calibration, ScaledChannelsKeepTheFunction) {
  const std::string inputs = QWEN_SOURCE_DIR "/test/Inputs/checkpoints/";
  expectScaled(inputs + "qwen2-tied-f32", 2, 16,
               {"self_attn.q_proj.weight", "mlp.gate_proj.weight",
                "mlp.down_proj.weight", "self_attn.o_proj.weight"});
  // Heads with a gate keep their scale; products in f32 read scaled rows, too.
  expectScaled(inputs + "qwen3_5-text-f32", 3, 64,
               {"linear_attn.in_proj_qkv.weight",
                "linear_attn.in_proj_a.weight", "mlp.down_proj.weight"});
}
