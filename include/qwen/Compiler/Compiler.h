//===- Compiler.h - From a checkpoint to a compiled model -------*- C++ -*-===//
//
// The compiler as a library: qwen-opt is a command line over it. It prints
// nothing, ends no process, and changes no signal handler, limit or setting of
// malloc. Several threads may call it, and it may run any number of times in a
// process; one compile runs at a time, and others wait.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_COMPILER_COMPILER_H
#define QWEN_COMPILER_COMPILER_H

#include "qwen/ABI/Blocks.h"
#include "qwen/CodeGen/Artifact/ArtifactWriter.h"
#include "qwen/Compiler/FormatPlan.h"
#include "qwen/Import/Adapters/Adapters.h"
#include "qwen/Quantizers/Quantizers.h"
#include "qwen/Support/WritableFile.h"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Off, on, or on where all matrices have formats in which the quantizer gains
/// by it (Quantizers.def) and none keeps its integers. On is an error where
/// matrices keep integers.
enum class Rotate : uint8_t { Off, On, Auto };
inline constexpr std::string_view kRotateNames[] = {"off", "on", "auto"};

/// The plan of formats for a checkpoint of floats, where no option names
/// formats (docs/decisions/0033-default-plan.md).
inline constexpr WeightPlan kDefaultPlan = WeightPlan::Mixed;

/// CompileOptions::stepBack of a hybrid: the drafts that a step can run of an
/// answer.
inline constexpr int64_t kDraftStepBack = 3;

struct CompileOptions {
  /// A target of resolveTargets, or a list of them of one architecture.
  std::string target = "native";
  /// By default KeepFormats for a checkpoint with matrices of integers, else
  /// kDefaultPlan.
  std::optional<WeightChoice> weights = {};
  /// Rules 'REGEX=FORMAT' for single matrices (formatsByRules).
  std::vector<std::string> tensorWeights = {};
  /// The quantizer of matrices, unless the checkpoint has them in their format;
  /// by default the plan's, or Rounding.
  std::optional<Quantizer> quantizer = {};
  /// An importance matrix (ImportanceMatrix.h), by which Search weighs columns:
  /// the model is not rotated then. Empty: none.
  std::filesystem::path imatrix = {};
  /// A file with the format and the quantizer of each matrix (readPlan), in
  /// place of the three options before.
  std::filesystem::path plan = {};
  /// Whether rotations are folded into the weights (qwen-rotate).
  Rotate rotate = Rotate::Auto;
  /// Whether matrices of floats keep the integers that they were made of
  /// (findGrid), where neither `weights` nor `tensorWeights` names a format.
  bool grids = true;
  /// Regular expressions (RE2) of tensors that the model does not know and that
  /// have no effect.
  std::vector<std::string> ignoredTensors = {};
  /// Adapters that are merged into the checkpoint, one after another.
  std::vector<AdapterOption> adapters = {};
  /// Layers that the model loses.
  Pruning pruning = {};
  /// Scales the positions of a model that does not scale them itself.
  std::optional<RopeScaling> ropeScaling = {};
  /// A file with a chat template (Jinja) in place of the checkpoint's.
  std::filesystem::path chatTemplate = {};
  /// Format of the KV cache; by default the plan's, or f32 with f32 weights,
  /// f16 with bf16 weights, else q8.
  std::optional<KvFormat> kv = {};
  /// Maximum length of a sequence; by default the checkpoint's maximum.
  std::optional<int64_t> context = {};
  /// Maximum tokens and rows of a call; by default kDefaultMaxTokens and
  /// kDefaultMaxRows.
  std::optional<int64_t> maxTokens = {}, maxRows = {};
  /// Tokens that a sequence can step back without a snapshot of its fixed
  /// state, which needs as many times its memory while it can; by default
  /// kDraftStepBack if the model has fixed state, else 0.
  std::optional<int64_t> stepBack = {};
  /// Whether a draft head of the checkpoint becomes a program.
  bool draftHead = true;
};

/// A model whose matrices get integers.
struct QuantizeInput {
  /// At stage "graph", as it is compiled.
  mlir::ModuleOp module;
  WeightSources &weights;
  /// The quantized formats of the matrices that do not keep integers of the
  /// checkpoint.
  MatrixFormats formats;
  /// The quantizers of these matrices.
  MatrixQuantizers quantizers;
  /// Whether rotations are or will be folded into the weights.
  bool rotated;
  const std::optional<TokenizerImport> &tokenizer;

  /// The values that ops read as the weight `name`.
  WeightSourcePtr source(const std::string &name) const;
  /// Replaces the source of matrix `name` by its integers.
  void replace(const std::string &name, WeightSourcePtr integers) const;
  /// Replaces the values of the weight `name`.
  void replaceValues(const std::string &name, WeightSourcePtr values) const;
};

/// What the caller of a compile adds to it. All are optional.
struct CompileHooks {
  /// Receives the number of packed bytes of the weight image. Only one thread
  /// calls it at a time.
  ProgressFn progress = {};
  /// Receives each warning, one line in lower case.
  std::function<void(const std::string &warning)> warn = {};
  /// Throws Error if the text is no chat template that the caller can render.
  /// The compile goes on with a warning if the template is the checkpoint's.
  std::function<void(const std::string &chatTemplate)> checkTemplate = {};
  /// Chooses layers that the model loses. `input` has no formats yet. Another
  /// compile may run meanwhile.
  std::function<Pruning(const QuantizeInput &input)> chooseLayers = {};
  /// Chooses the ids that the head of drafts has, ascending: the draft head's,
  /// or without one the model's, which is for drafts alone then. `input` has no
  /// formats yet. Another compile may run meanwhile.
  std::function<std::vector<int32_t>(const QuantizeInput &input)>
      chooseDraftTokens = {};
  /// Changes values before they are rotated, so that a quantizer loses less
  /// (awq). Returns what the manifest records about its text. Another compile
  /// may run meanwhile.
  std::function<Quantization(const QuantizeInput &input)> scaleChannels = {};
  /// Chooses the integers of matrices by a text and replaces their sources.
  /// `input` has the matrices whose quantizers need moments. Quantizer::Search
  /// chooses the integers of matrices that it leaves. Returns what the manifest
  /// records about the text. Another compile may run meanwhile.
  std::function<Quantization(const QuantizeInput &input)> quantize = {};
  /// Checks the complete artifact before it is committed. Throws Error to
  /// reject it.
  std::function<void(const std::string &file,
                     llvm::ArrayRef<TargetCode> targets,
                     const ArtifactInput &input)>
      check = {};
};

/// The tensors of one format.
struct FormatSummary {
  std::string name;
  int64_t tensors;
  uint64_t bytes;
};

/// The multiplications of a calibration by gptq (docs/quantization.md): `token`
/// for each token of the text, and `once` for any text.
struct CalibrationWork {
  uint64_t token = 0, once = 0;
};

/// The facts of a compiled model.
struct CompileSummary {
  std::string_view architecture;
  /// Names of the targets, the best first, and the kernels of each.
  std::vector<std::string> targets;
  std::vector<std::vector<std::string>> kernels;
  std::vector<FormatSummary> formats;
  std::vector<Conversion> conversions;
  Quantization quantization;
  /// The text of a plan file that makes the same model (CompileOptions::plan).
  std::string plan;
  /// Lines about parts of the checkpoint without effect.
  std::vector<std::string> notes;
  /// Names of the tensors that the model does not use, by kind.
  std::map<std::string, std::vector<std::string>, std::less<>> unusedTensors;
  uint64_t fileBytes, codeBytes, weightBytes, arenaBytes;
  int64_t maxTokens, maxRows;
  /// Bytes of the logits of maxRows rows.
  uint64_t resultBytes;
  /// The formats of keys and values (describeKvFormats).
  std::string kv;
  /// Bytes of the paged caches for a position, of the fixed caches for a
  /// sequence, and of the further states of one that can step back.
  int64_t positionBytes, sequenceBytes, stepBackBytes;
  /// Absent for a model with experts: its work depends on the experts that
  /// tokens choose.
  std::optional<CalibrationWork> calibration;
};

/// Compiles `checkpoint`, a Hugging Face folder or a GGUF file, into `output`
/// and commits it. The same input gives the same bytes. Throws Error, whose
/// fields say more, or std::bad_alloc; `output` is not committed then.
CompileSummary compileModel(const std::filesystem::path &checkpoint,
                            WritableFile &output,
                            const CompileOptions &options = {},
                            const CompileHooks &hooks = {});

/// What emit prints: the module of a stage, or the generated code.
enum class EmittedStage : uint8_t {
  Graph,
  Quantized,
  Packed,
  Calls,
  LLVM,
  Assembly
};

/// Returns "graph", "quantized", "packed", "calls", "llvm" or "asm".
std::string_view emittedStageName(EmittedStage stage);
std::optional<EmittedStage> parseEmittedStage(std::string_view name);
inline constexpr EmittedStage kEmittedStages[] = {
    EmittedStage::Graph, EmittedStage::Quantized, EmittedStage::Packed,
    EmittedStage::Calls, EmittedStage::LLVM,      EmittedStage::Assembly};

/// The text of a stage: the code of all targets, or one module for each target,
/// separated by MLIR's split marker. Throws Error.
std::string emit(const std::filesystem::path &checkpoint, EmittedStage stage,
                 const CompileOptions &options = {},
                 const CompileHooks &hooks = {});

/// Loads the dialects of modules that compileProgram takes.
void loadDialects(mlir::MLIRContext &context);

struct ProgramOptions {
  /// A target of resolveTargets.
  std::string target = "native";
  /// Formats of the matrices and of the KV cache.
  WeightFormat weights = WeightFormat::F32;
  KvFormat kv = KvFormat::F32;
};

/// Compiles the programs of `module` (stage "graph"): functions of graph ops.
/// Their arguments are ids, positions, or rows with a name (qwen.name) that the
/// caller gives or that another program leaves in the arena (qwen.from); their
/// results are logits or rows with a name. Brings the module to stage "calls",
/// so that packImage takes it. Throws Error.
ProgramCode compileProgram(mlir::ModuleOp module,
                           const ProgramOptions &options = {});

} // namespace qwen

#endif // QWEN_COMPILER_COMPILER_H
