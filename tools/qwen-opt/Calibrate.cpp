//===- Calibrate.cpp - The command line of a calibration ------------------===//

#include "Calibrate.h"

#include "CommandLine.h"
#include "ProgressBar.h"
#include "artifact/File.h"
#include "calibration/Calibration.h"
#include "calibration/Distillation.h"
#include "calibration/EmbeddedTexts.h"
#include "calibration/LoadedPrograms.h"
#include "qwen/Support/Error.h"
#include "text/Tokenizer.h"

#include "llvm/Support/raw_ostream.h"

using namespace qwen;

void qwen::addCalibration(const Command &command, CalibrateFlags &flags) {
  command.addFlagWithValue(
      "--calibrate", [&flags](const std::string &text) { flags.text = text; },
      "Let a text choose the integers: runs the model over up to " +
          std::to_string(kCalibrationTokens) +
          " tokens of FILE, by default of a text of qwen-opt's own; "
          "the quantizer is gptq then");
  command
      .addSize("--calibrate-memory", flags.memory,
               "Memory of a calibration; the rest of its data lies in a "
               "temporary file")
      .needs(command.option("--calibrate"));
  command
      .addFlag("--awq", flags.awq,
               "Scale channels by the calibration text, so that outliers lose "
               "less; for formats that are not rotated")
      .needs(command.option("--calibrate"));
  command
      .addFlagWithValue(
          "--distill",
          [&flags](const std::string &steps) {
            flags.distill = steps == kNoValue
                                ? kDistillSteps
                                : parseNumber<int64_t>("--distill", steps, 1,
                                                       kMostDistillSteps);
          },
          "Let the scales learn from the model in f32 behind a calibration, in "
          "STEPS steps of a window of the text, by default " +
              std::to_string(kDistillSteps) +
              "; the file keeps its size and speed")
      .needs(command.option("--calibrate"));
}

std::optional<Quantizer> qwen::chooseQuantizer(const Command &command,
                                               const CalibrateFlags &flags,
                                               const std::string &name) {
  const bool calibrates = !flags.text.empty();
  if (calibrates && !command.option("-o").isGiven())
    throw UsageError(command, "--calibrate needs -o");
  if (name.empty())
    return calibrates ? std::optional(Quantizer::Gptq) : std::nullopt;
  const Quantizer quantizer = parseQuantizer(name).value();
  if (needsText(quantizer) && !calibrates)
    throw UsageError(command, "--quantizer " + name + " needs --calibrate");
  if (!needsText(quantizer) && flags.distill != 0)
    throw UsageError(command, "--distill has no effect on --quantizer " + name +
                                  ": gptq and gptq+cd have scales that learn");
  if (!needsText(quantizer) && calibrates && !flags.awq && flags.prune.empty())
    throw UsageError(command, "--calibrate has no effect on --quantizer " +
                                  name + " without --awq or --prune");
  return quantizer;
}

std::string qwen::calibrationFolder(const std::string &output) {
  return output + ".calibration";
}

std::string qwen::readTextFile(const std::string &path) {
  const File file(path);
  if (file.size() > Tokenizer::kMaxTextBytes)
    throw Error(part::file(path) + " has " + part::found(file.size()) +
                " bytes when a text has at most " +
                part::needed(Tokenizer::kMaxTextBytes));
  std::string text(file.size(), 0);
  file.read(0, text.data(), text.size());
  return text;
}

std::function<CalibrationText(const QuantizeInput &)>
qwen::calibrationText(const CalibrateFlags &flags,
                      const std::string &checkpoint,
                      const std::string &option) {
  const bool isOwn = flags.text.empty() || flags.text == kNoValue;
  return [=, text = isOwn ? "" : readTextFile(flags.text),
          name = isOwn ? "the text of qwen-opt"
                       : flags.text](const QuantizeInput &input) {
    if (!input.tokenizer)
      throw Error(part::file(checkpoint) + " has no tokenizer, which " +
                  option + " needs");
    const std::vector<std::string_view> texts =
        isOwn ? embeddedTextViews() : std::vector<std::string_view>{text};
    return readCalibrationText(*input.tokenizer, texts,
                               modelFact(input.module, "max_context"), name);
  };
}

static Quantization recordOf(const CalibrationText &windows) {
  return {.tokens = std::ssize(windows.ids), .text = windows.hash};
}

void qwen::addCalibrationHooks(const CalibrateFlags &flags,
                               std::optional<Quantizer> quantizer,
                               const std::string &checkpoint,
                               const std::string &folder,
                               std::vector<std::string> &lines,
                               CompileHooks &hooks) {
  if (flags.text.empty())
    return;
  const auto text = calibrationText(flags, checkpoint, "--calibrate");
  if (flags.awq)
    hooks.scaleChannels = [text](const QuantizeInput &input) {
      const CalibrationText windows = text(input);
      ProgressBar bar("scaling channels");
      scaleChannels(
          input, windows, machineThreads(),
          [&](uint64_t done, uint64_t total) { bar.update(done, total); });
      return recordOf(windows);
    };
  if (!quantizer || !needsText(*quantizer))
    return;
  hooks.quantize = [text, flags, folder, &lines](const QuantizeInput &input) {
    const CalibrationText windows = text(input);
    std::optional<ProgressBar> bar("calibrating");
    CalibrationOptions options = {
        .memory = flags.memory,
        .folder = folder,
        .note = [](const std::string &line) { llvm::errs() << line << '\n'; },
        .progress = [&](uint64_t done,
                        uint64_t total) { bar->update(done, total); }};
    std::optional<Distillation> distillation;
    if (flags.distill != 0) {
      distillation.emplace(input, windows, flags.distill, options);
      options.lastRows = [&](std::span<const float> rows) {
        distillation->keepTeacher(rows);
      };
    }
    calibrate(input, windows, options);
    Quantization record = recordOf(windows);
    if (distillation) {
      bar.emplace("distilling");
      const DistillResult result = distillation->run();
      lines.push_back(result.line);
      record.distilled = result.kept;
    }
    return record;
  };
}
