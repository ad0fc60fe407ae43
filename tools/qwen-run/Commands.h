//===- Commands.h - The commands of qwen-run --------------------*- C++ -*-===//
//
// The options of each command and the functions that run the commands. All
// functions throw Error.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_COMMANDS_H
#define QWEN_RUN_COMMANDS_H

#include "engine/PrefixCache.h"
#include "engine/Sampler.h"
#include "model/Model.h"
#include "server/ServerOptions.h"
#include "text/Retrieval.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qwen::run {

/// Options that replace values of the checkpoint's generation config.
struct SamplingFlags {
#define QWEN_SAMPLING(Type, Field, Name, ...) std::optional<Type> Field;
#include "qwen/ABI/SamplerOptions.def"
  std::vector<TokenBias> logitBias;
  std::optional<uint64_t> seed;

  SamplerOptions apply(const GenerationConfig &generation) const;
};

/// Finishes the check of the weights, for at most a second, and reports weights
/// that are still unchecked on standard error. Throws Error if weights are
/// damaged.
void finishCheck(Model &model);

/// Snapshots of the fixed state of sequences, for models that have some.
struct SnapshotFlags {
  int64_t every = PrefixCache::kSnapshotEvery;
  int64_t bytes = kSnapshotBytes;
};

/// The options of all commands that run a model.
struct RunFlags {
  std::string file;
  /// 0: one for each physical performance core that this process may use.
  int32_t threads = 0;
  /// Whether there may be more threads than cores.
  bool anyThreads = false;
  WeightCheck check = WeightCheck::Background;
  bool lock = false;

  /// The threads and options with these flags, as far as this machine can
  /// follow them. Both report on standard error what it cannot follow.
  std::shared_ptr<ThreadPool> pool() const;
  EngineOptions options(const Model &model) const;
  /// Starts the engine of a model with these threads.
  Engine &start(Model &model, const EngineOptions &engineOptions) const {
    return model.start(pool(), engineOptions);
  }
};

struct GenerateCommand : RunFlags {
  std::optional<std::string> prompt;
  std::optional<std::string> ids;
  std::optional<int64_t> count;
  SamplingFlags sampling;
  bool ignoreEos = false;
  int64_t piece = 0;
};
void generate(const GenerateCommand &command);

struct ChatCommand : RunFlags {
  std::optional<int64_t> count;
  SamplingFlags sampling;
  /// The template's enable_thinking; nothing if no flag sets it.
  std::optional<bool> thinking;
  /// Read special tokens in the user's lines and in answers.
  bool allowSpecial = false;
  SnapshotFlags snapshots;
};
void chat(const ChatCommand &command);

struct ServeCommand : RunFlags {
  server::ServerOptions server;
  SnapshotFlags snapshots;
};
void serve(const ServeCommand &command);

struct BenchCommand : RunFlags {
  BenchCommand() { check = WeightCheck::Off; }

  int64_t prompt = 128;
  int64_t count = 32;
  /// Sequences that run together; each has `prompt` and `count` tokens.
  int64_t batch = 1;
  /// Numbers of requests that a scheduler answers at once; empty: none.
  std::vector<int64_t> clients;
  int64_t repetitions = 5;
  /// Also measures the memory bandwidth.
  bool bandwidth = false;
  bool json = false;
  /// Repeats all runs with a profile of each op.
  bool profile = false;
  /// File for a picture of the last profiled run; empty for none.
  std::string svg;
};
/// The i-th token of a benchmark's text. The tokens differ, although speed does
/// not depend on them.
int32_t benchToken(const Manifest &manifest, int64_t i);

/// {"median", "least", "greatest"} of `values`, which are not empty.
nlohmann::ordered_json summary(std::vector<double> values);
void bench(const BenchCommand &command);
/// Compares decoding through a scheduler with decoding without it.
void benchClients(const BenchCommand &command);
/// Throws Error if a run does not fit in the context.
void checkBenchLength(const BenchCommand &command, const ModelInfo &model);
/// Called after each step of a run.
using StepFn = std::function<void(const SequenceStep &step, double seconds)>;
/// Runs `batch` prompts and the tokens after them, and returns the seconds of
/// both. Without `stepDone` nothing reads the clock in between.
std::pair<double, double> runSteps(const BenchCommand &command, Engine &engine,
                                   const StepFn &stepDone);
/// Compares the memory bandwidth over the weights with that of decoding, in
/// alternating measurements.
void bandwidth(const BenchCommand &command);

struct InfoCommand {
  std::string file;
  bool json = false;
  bool check = false;
};
void info(const InfoCommand &command);

struct VerifyCommand {
  std::string file;
  bool json = false;
};
/// Compares the kernels of every target that this machine supports with the
/// reference, and stops at the first difference. If a kernel causes a fault, it
/// prints the fault and exits with status 1.
void verify(const VerifyCommand &command);

struct TokenizeCommand {
  std::string file;
  std::optional<std::string> text;
  bool json = false;
  bool decode = false;
};
void tokenize(const TokenizeCommand &command);

struct LogitsCommand : RunFlags {
  LogitsCommand() { anyThreads = true; }

  /// Ids of each sequence; all sequences run together.
  std::vector<std::string> ids;
  std::string output;
  int64_t piece = 0;
};
void logits(const LogitsCommand &command);

struct EmbedCommand : RunFlags {
  /// Files with a text in each line; empty for standard input.
  std::vector<std::string> files;
  /// Token ids of each prompt, in place of texts.
  std::vector<std::string> ids;
  /// What the texts are queries for; nothing if they are documents.
  std::optional<std::string> instruction;
  /// Number of first values of an embedding that are kept.
  std::optional<int64_t> dimensions;
  /// NumPy file; empty for JSON lines on standard output.
  std::string output;
};
void embed(const EmbedCommand &command);

struct RerankCommand : RunFlags {
  std::string query;
  /// Files with a document in each line; empty for standard input.
  std::vector<std::string> files;
  std::string instruction = Reranker::kInstruction;
};
void rerank(const RerankCommand &command);

struct PerplexityCommand : RunFlags {
  std::string text;
  std::optional<int64_t> window;
  std::optional<int64_t> stride;
  bool json = false;
};
void perplexity(const PerplexityCommand &command);

/// `file` is the reference.
struct CompareCommand : RunFlags {
  std::string model;
  std::string text;
  /// Tokens of a window, and its first rows that are not scored: the second
  /// half counts, as in llama.cpp's perplexity tool.
  int64_t window = 512;
  std::optional<int64_t> skip;
  std::optional<int64_t> windows;
  bool json = false;

  int64_t skippedRows() const { return skip.value_or(window / 2); }
};
/// Prints how far the distributions of a model are from those of a reference.
void compare(const CompareCommand &command);

/// Whether this machine can run the code of `target`.
bool runsHere(const TargetInfo &target);

/// The reason for the limit Tokenizer::kMaxTextBytes, for errors.
inline constexpr const char *kLongestText =
    "the tokenizer takes no longer text";

} // namespace qwen::run

#endif // QWEN_RUN_COMMANDS_H
