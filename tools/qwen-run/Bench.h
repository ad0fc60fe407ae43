//===- Bench.h - What the benchmarks share ----------------------*- C++ -*-===//
//
// The options of "bench" and the parts that its kinds of measurement share. All
// functions throw Error.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_BENCH_H
#define QWEN_RUN_BENCH_H

#include "JsonOutput.h"
#include "Options.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qwen::run {

struct BenchCommand : RunFlags {
  BenchCommand() { engine.check = WeightCheck::Off; }

  /// Positions before the prompt, whole pages.
  int64_t depth = 0;
  int64_t prompt = 128;
  int64_t count = 32;
  /// Sequences that run together; each has `prompt` and `count` tokens.
  int64_t batch = 1;
  /// Numbers of requests that a scheduler answers at once; empty: none.
  std::vector<int64_t> clients;
  /// Files with prompts and answers that the sequences replay; empty: none.
  std::vector<std::string> replay;
  /// Drafts of each answer in a step of the replay; 0: as many as save time.
  /// Empty: 0 alone.
  std::vector<int64_t> drafts;
  /// The chance with which the replay takes a draft for the next token.
  std::optional<double> acceptance;
  int64_t repetitions = 5;
  /// Also measures the memory bandwidth.
  bool bandwidth = false;
  bool json = false;
  /// Repeats all runs with a profile of each op.
  bool profile = false;
  /// File for a picture of the last profiled run; empty for none.
  std::string svg;
};
/// A page of the KV cache, with the fixed state behind it, whose copies make a
/// sequence as long as a benchmark wants it without a prompt. A decoded token
/// reads as many keys and values as behind a text of that length.
class FilledPage {
public:
  /// Runs one page of tokens.
  explicit FilledPage(Engine &engine);
  /// Opens a sequence of `depth` positions, a multiple of kPageTokens. Throws
  /// Error if not as many pages are free.
  SequenceId open(Engine &engine, int64_t depth) const;

private:
  std::vector<uint8_t> behind(int64_t depth, const SequenceState &state) const;

  std::vector<uint8_t> page, fixed;
};
/// The i-th token of a benchmark's text. Texts of two sequences differ, so that
/// their tokens choose experts of their own.
int32_t benchToken(const Manifest &manifest, int64_t i, int64_t sequence = 0);

/// What is printed of several measurements.
struct Summary {
  double median, least, greatest;

  JsonText toJson() const;
};
/// `values` are not empty.
Summary summary(std::vector<double> values);
/// Compares decoding through a scheduler with decoding without it.
void benchClients(const BenchCommand &command);
/// Measures engines on groups of cores side by side, and one engine on all of
/// the cores with as many sequences.
void benchGroups(const BenchCommand &command);
/// Compares the replay of texts with drafts with the replay without.
void benchReplay(const BenchCommand &command);
/// Throws Error if a run does not fit in the context.
void checkBenchLength(const BenchCommand &command, const ModelInfo &model);
/// Called after each step of a run.
using StepFn = std::function<void(const SequenceStep &step, double seconds)>;
/// Runs `batch` prompts and the tokens after them, and returns the seconds of
/// both. Without `stepDone` nothing reads the clock in between.
std::pair<double, double> runSteps(const BenchCommand &command, Engine &engine,
                                   const StepFn &stepDone);
/// Compares the memory bandwidth over the weights with the bandwidth of
/// decoding, in alternating measurements.
void bandwidth(const BenchCommand &command);

} // namespace qwen::run

#endif // QWEN_RUN_BENCH_H
