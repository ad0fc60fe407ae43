//===- PrintSummary.cpp - The closing lines of a compile ------------------===//

#include "PrintSummary.h"

#include "MeasuredLoss.h"
#include "calibration/Calibration.h"
#include "qwen/ABI/Caches.h"
#include "qwen/Quantizers/InputMoments.h"
#include "qwen/Support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cmath>
#include <cstdio>

using namespace qwen;

std::string qwen::withUnit(uint64_t bytes) {
  char text[40];
  const double kib = double(bytes) / 1024;
  if (kib < 1024)
    std::snprintf(text, sizeof text, "%.1f KiB", kib);
  else
    std::snprintf(text, sizeof text, "%.1f MiB", kib / 1024);
  return text;
}

/// Prints what became of each type of the checkpoint.
static void printConversions(llvm::ArrayRef<Conversion> conversions,
                             llvm::raw_ostream &out) {
  for (const Conversion &conversion : conversions) {
    out << "  from " << conversion.from << ": " << conversion.matrices
        << " matrices, " << withUnit(conversion.bytesBefore) << ", "
        << (conversion.error > 0 ? "converted to " : "kept exactly in ")
        << weightFormatName(conversion.to) << ", "
        << withUnit(conversion.bytesAfter);
    if (conversion.error > 0)
      out << llvm::format(", with an error of %.3g%%", conversion.error * 100);
    out << '\n';
  }
}

/// The first of `names`, and how many there are.
static std::string shortList(llvm::ArrayRef<std::string> names) {
  constexpr size_t kShown = 3;
  std::string list = printable(
      llvm::join(names.take_front(std::min(kShown, names.size())), ", "));
  if (names.size() > kShown)
    list += " and " + std::to_string(names.size() - kShown) + " more";
  return list;
}

/// Prints what became of the checkpoint's tensors.
static void printTensors(const CompileSummary &summary,
                         llvm::raw_ostream &out) {
  for (const FormatSummary &format : summary.formats)
    out << "  " << format.name << ": " << format.tensors << " tensors, "
        << withUnit(format.bytes) << '\n';
  printConversions(summary.conversions, out);
  for (const std::string &note : summary.notes)
    out << "  " << note << '\n';
  for (const auto &[kind, names] : summary.unusedTensors)
    out << "  not used, " << kind << ": " << shortList(names) << '\n';
}

/// Multiplications of moments a second, which all parts of a calibration
/// multiply at about the speed of (docs/quantization.md).
static double multiplicationsPerSecond() {
  constexpr int64_t kInputs = 1024, kRows = 512;
  const std::vector<float> rows(size_t{kInputs * kRows}, 0.5f);
  InputMoments moments(kInputs);
  const auto add = [&] {
    moments.add(rows.data(), kRows, kInputs, machineThreads());
  };
  // The first call touches the pages.
  add();
  const auto start = std::chrono::steady_clock::now();
  add();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  return double(kInputs) * kInputs / 2 * kRows / seconds.count();
}

/// "about 5 minutes on this machine".
static std::string minutesOf(const std::optional<CalibrationWork> &work) {
  if (!work)
    return "minutes";
  const double seconds =
      (double(work->token) * double(kCalibrationTokens) + double(work->once)) /
      multiplicationsPerSecond();
  const auto minutes = static_cast<int64_t>(std::ceil(seconds / 60));
  return "about " + std::to_string(minutes) +
         (minutes == 1 ? " minute" : " minutes") + " on this machine";
}

std::optional<std::string>
qwen::calibrationAdvice(const CompileSummary &summary,
                        std::string_view weights) {
  if (summary.quantization.tokens != 0 ||
      !llvm::any_of(summary.conversions, [](const Conversion &conversion) {
        return conversion.error > 0 && isQuantized(conversion.to);
      }))
    return std::nullopt;
  std::string losses;
  if (const std::optional<MeasuredLoss> loss = measuredLossOf(weights))
    losses = llvm::formatv(" (KL of a small model: {0:f4}, not {1:f4})",
                           loss->calibrated, loss->plain);
  return "--calibrate would lower the loss of accuracy" + losses +
         " in as many bytes and at the same speed, in " +
         minutesOf(summary.calibration) + " (docs/quantization.md)";
}

void qwen::printSummary(const std::string &name, const CompileSummary &summary,
                        std::string_view weights,
                        const std::vector<std::string> &lines, double seconds) {
  llvm::raw_ostream &out = llvm::errs();
  out << printable(name) << ": " << summary.architecture << " for "
      << llvm::join(summary.targets, ", ") << '\n';
  printTensors(summary, out);
  if (summary.quantization != Quantization())
    out << "  quantizer: " << summary.quantization.describe() << '\n';
  if (const auto advice = calibrationAdvice(summary, weights))
    out << "  " << *advice << '\n';
  out << "  file: " << summary.fileBytes << " bytes (code "
      << withUnit(summary.codeBytes) << ", weights "
      << withUnit(summary.weightBytes) << ")\n"
      << "  arena: " << summary.arenaBytes << " bytes for " << summary.maxTokens
      << " tokens and " << summary.maxRows << " rows a call, whose logits take "
      << withUnit(summary.resultBytes) << '\n'
      << "  kv cache: " << summary.kv << ", " << summary.positionBytes
      << " bytes a token, " << summary.positionBytes * kPageTokens
      << " a page of " << kPageTokens << '\n';
  if (summary.sequenceBytes)
    out << "  state: "
        << describeStates(summary.sequenceBytes, summary.stepBackBytes) << '\n';
  for (size_t i = 0; i < summary.targets.size(); ++i)
    out << "  kernels"
        << (summary.targets.size() > 1 ? " of " + summary.targets[i] : "")
        << ": " << llvm::join(summary.kernels[i], ", ") << '\n';
  for (const std::string &line : lines)
    out << "  " << line << '\n';
  out << llvm::format("  %.1f seconds\n", seconds);
}
