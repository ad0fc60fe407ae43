//===- CalibrationTest.cpp - Integers that a text chooses -----------------===//
//
// Compiles models/stories with a few windows of text.
//
//===----------------------------------------------------------------------===//

#include "qwen/Calibration/Calibration.h"

#include "Stories.h"
#include "TempDir.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>

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

/// Calls `take` with a calibrated model of q4_0.
template <typename Take>
void calibrated(const std::string &checkpoint, const CalibrationText &text,
                const CalibrationOptions &options, const Take &take) {
  MemoryFile file;
  try {
    compileModel(checkpoint, file,
                 {.weights = WeightFormat::Q4_0, .quantizer = Quantizer::Gptq},
                 {.quantize = [&](const QuantizeInput &input) -> Quantization {
                   calibrate(input, text, options);
                   take(input);
                   throw Enough();
                 }});
  } catch (const Enough &) {
  }
}

/// All integers of models/stories, calibrated, and their errors.
std::string calibrateStories(const CalibrationOptions &options,
                             const CalibrationText &text = shortText()) {
  std::string integers;
  calibrated(kStories, text, options, [&](const QuantizeInput &input) {
    for (const auto &[name, format] : input.formats) {
      const WeightSourcePtr source = input.source(name);
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
  });
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
    EXPECT_EQ(notes.size(), 1u);
    EXPECT_TRUE(notes[0].starts_with("calibration: 256 tokens; up to "))
        << notes[0];
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
  EXPECT_NE(notes.at(1).find("13 of 13 steps were finished before"),
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
  EXPECT_EQ(notes.size(), 2u);
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
  calibrated(QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3_5-text-f32", text,
             {}, [&](const QuantizeInput &input) {
               for (const auto &[name, format] : input.formats)
                 matrices += input.source(name)->keptFormat() == format;
               // No product reads the embedding of an untied model.
               EXPECT_EQ(matrices + 1, input.formats.size());
             });
  EXPECT_GT(matrices, 10u);
}
