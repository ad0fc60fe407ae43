//===- Options.h - Options that several commands share ----------*- C++ -*-===//
//
// The options of commands that run a model: where they are stored, how they are
// added to a command, and what they mean on this machine.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_OPTIONS_H
#define QWEN_RUN_OPTIONS_H

#include "CommandLine.h"
#include "CompileOptions.h"
#include "Groups.h"
#include "cache/CompiledModel.h"
#include "engine/BeamSearch.h"
#include "engine/Sampler.h"
#include "model/EngineGroups.h"

#include "qwen/Support/OutputTarget.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qwen::run {

/// The maximum of options that count something.
inline constexpr int64_t kMost = INT32_MAX;

/// Options that replace values of the checkpoint's generation config.
struct SamplingFlags {
  /// The preset, whose settings come before the other flags; empty: none.
  std::string preset;
#define QWEN_SAMPLING(Type, Field, Name, ...) std::optional<Type> Field;
#include "qwen/ABI/SamplerOptions.def"
  std::vector<TokenBias> logitBias;
  SamplerTexts texts;
  std::optional<std::vector<SamplerKind>> samplers;
  std::optional<uint64_t> seed;

  /// Their texts have no tokens yet (resolveTexts).
  SamplerOptions apply(const GenerationConfig &generation) const;
};

/// A beam search, and how many of its answers are printed.
struct BeamFlags {
  BeamOptions options;
  int64_t answers = 1;
};

/// Options of the compile of a MODEL.
struct CompileFlags {
  std::vector<CompileArgument> arguments;
  /// Whether to say what would be done instead of doing anything.
  bool dryRun = false;
};

/// MODEL of a command line: a compiled file, or what compiledModel makes one
/// of.
class ModelFile {
public:
  /// The path of the compiled file. The first call may compile the model.
  /// Throws Error; with --dry-run, it prints what it would do and throws
  /// CommandDone.
  const std::string &path(FilePlace place = FilePlace::Anywhere) const;
  /// Notes the files of MODEL as inputs, for a command that makes its output
  /// before it opens the model.
  void noteInput() const;
  /// Takes the options of the compile of another model of the command.
  void shareFlags(const ModelFile &other) { flags = other.flags; }
  /// MODEL itself; empty if a command has none and needs none.
  const std::string &name() const { return given; }
  const CompileFlags &compile() const { return *flags; }

private:
  friend Option addFile(const Command &command, ModelFile &file,
                        const char *name, const char *part);
  std::string given;
  std::shared_ptr<CompileFlags> flags = std::make_shared<CompileFlags>();
  mutable std::string compiled;
};

/// The options of all commands that run a model.
struct RunFlags {
  ModelFile file;
  EngineOptions engine;
  /// A file with a smaller model whose drafts the answers have, or empty.
  std::string draftModel;
  /// Whether there may be more threads than cores.
  bool anyThreads = false;
  /// For commands with addGroups.
  GroupFlags groups;

  /// The threads and options with these flags, as far as this machine can
  /// follow them. Both report on standard error what it cannot follow.
  std::shared_ptr<ThreadPool> pool() const;
  EngineOptions options(const Model &model) const;
  /// The memory that --max-memory leaves this process.
  std::shared_ptr<MemoryBudget> budget() const;
  /// Starts the engine of a model with these threads and the memory of `shared`
  /// or, if that is null, of budget(). Reports on standard error that the model
  /// cannot have the drafts of an option.
  std::unique_ptr<Engine>
  start(const Model &model, const EngineOptions &engineOptions,
        const std::shared_ptr<MemoryBudget> &shared = nullptr) const;
  /// The same on the groups of cores of these flags, or one engine without.
  EngineGroups
  startGroups(const Model &model, const EngineOptions &engineOptions,
              const std::shared_ptr<MemoryBudget> &shared = nullptr) const;

private:
  /// Reports on standard error why the model gets no drafts, if it gets none
  /// of those that the flags ask for.
  void reportDrafts(const Model &model, const Engine &started) const;
};

/// Adds a model, an argument of a command whose part there is `part`, and the
/// options of its compile that have no other meaning for the command. Returns
/// the argument, which is required.
Option addFile(const Command &command, ModelFile &file,
               const char *name = "MODEL", const char *part = "The model");

/// Adds the options of RunFlags but the file: the engine's options for all
/// commands and for `parts`. Without EnginePart::Snapshots, the engine takes no
/// snapshots.
void addRun(const Command &command, RunFlags &flags,
            std::initializer_list<EnginePart> parts = {});

/// Adds --preset, an option for each row of SamplerOptions.def, the options of
/// lists and --seed.
void addSampling(const Command &command, SamplingFlags &flags);

/// Adds an option for each row of BeamOptions.def, --early-stopping and
/// --num-return-sequences. Those beside --num-beams need it.
void addBeams(const Command &command, BeamFlags &flags);

/// The text of a file with a chat template; empty if `file` is. Throws Error if
/// it cannot be rendered.
std::string readTemplate(const std::string &file);

/// Finishes the check of the weights, for at most a second, and reports weights
/// that are still unchecked on standard error. Throws Error if weights are
/// damaged.
void finishCheck(const Model &model, Engine &engine);

/// The reason for the limit Tokenizer::kMaxTextBytes, for errors.
inline constexpr const char *kLongestText =
    "the tokenizer takes no longer text";

} // namespace qwen::run

#endif // QWEN_RUN_OPTIONS_H
