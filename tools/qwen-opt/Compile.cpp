//===- Compile.cpp - The compile driver -----------------------------------===//

#include "Compile.h"

#include "CommandLine.h"
#include "Verify.h"
#include "jinja/ChatTemplate.h"

#include "qwen/ABI/KernelTable.h"
#include "qwen/CodeGen/Artifact/ArtifactWriter.h"
#include "qwen/CodeGen/Artifact/Code.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Lower/Caches.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Import/Tokenizer/Tokenizer.h"
#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace qwen;

/// The value of --weights that keeps the formats of the checkpoint.
static constexpr std::string_view kKeep = "keep";

namespace {
struct Options {
  std::string checkpoint;
  std::string output;
  std::string target = "native";
  std::string weights;
  std::vector<std::string> tensorWeights;
  std::vector<std::string> ignoredTensors;
  std::string kv;
  std::string emit;
  std::optional<int64_t> context;
  std::optional<int64_t> maxTokens;
  std::optional<int64_t> maxRows;
  bool verify = false;
  std::string runner;

  /// Chooses the format of the weights, if no option does.
  void setWeights(mlir::ModuleOp model) {
    if (weights.empty())
      weights = llvm::any_of(model.getOps<WeightOp>(),
                             [](WeightOp w) { return w.getStored(); })
                    ? kKeep
                    : weightFormatName(WeightFormat::Q4_0);
  }

  PipelineOptions pipelineOptions(Stage last) const {
    PipelineOptions options{.kv = kvFormat(), .last = last};
    if (const auto format = parseWeightFormat(weights))
      options.weights = *format;
    else
      options.tensorWeights.push_back("=" + weights);
    llvm::append_range(options.tensorWeights, tensorWeights);
    return options;
  }
  KvFormat kvFormat() const {
    return parseKvFormat(kv).value_or(
        parseWeightFormat(weights) == WeightFormat::F32 ? KvFormat::F32
                                                        : KvFormat::F16);
  }
};

/// Draws a progress bar if standard error is a terminal.
class ProgressBar {
public:
  explicit ProgressBar(std::string label)
      : label(std::move(label)), terminal(isatty(STDERR_FILENO) != 0) {}
  ~ProgressBar() {
    if (percent >= 0)
      std::fputs("\r\033[K", stderr);
  }

  void update(uint64_t done, uint64_t total) {
    const int now =
        static_cast<int>(total == 0 ? 100 : double(done) / double(total) * 100);
    if (!terminal || now == percent)
      return;
    percent = now;
    std::string bar(static_cast<size_t>(now) * kWidth / 100, '#');
    bar.resize(kWidth, '.');
    std::fprintf(stderr, "\r%s [%s] %3d%%", label.c_str(), bar.c_str(), now);
    std::fflush(stderr);
  }

private:
  static constexpr size_t kWidth = 40;
  const std::string label;
  const bool terminal;
  int percent = -1;
};
} // namespace

//===----------------------------------------------------------------------===//
// The passes
//===----------------------------------------------------------------------===//

/// Runs the passes up to `last`. Throws their first error as Error.
static void runPasses(mlir::ModuleOp module, const Options &options,
                      Stage last) {
  mlir::PassManager manager(module.getContext());
  buildPipeline(manager,
                options.pipelineOptions(std::min(last, Stage::Packed)));
  if (last == Stage::Calls) {
    manager.addPass(createLower());
    manager.addPass(createVerifyStage({Stage::Calls}));
  }
  std::string message;
  mlir::ScopedDiagnosticHandler handler(
      module.getContext(), [&](mlir::Diagnostic &diagnostic) {
        if (message.empty() &&
            diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          message = diagnostic.str();
      });
  if (mlir::failed(manager.run(module)))
    throw Error(message.empty() ? "a pass failed" : message);
}

/// Sets the module attributes that passes read.
static void setOptions(mlir::ModuleOp module, const Target &target) {
  module->setAttr(kTargetFeaturesAttr,
                  FeaturesAttr::get(module.getContext(), target.features));
}

static Stage stageToReach(const std::string &emit) {
  return symbolizeStage(emit).value_or(Stage::Calls);
}

/// Brings the model to the requested stage, once for each target. At stage
/// "calls" the targets are sorted, best first.
static std::vector<TargetCode> compileTargets(mlir::ModuleOp model,
                                              const Options &options,
                                              std::vector<Target> targets) {
  const Stage stage = stageToReach(options.emit);
  std::vector<TargetCode> codes;
  for (Target &target : targets) {
    mlir::OwningOpRef<mlir::ModuleOp> module = model.clone();
    setOptions(*module, target);
    runPasses(*module, options, stage);
    codes.push_back({std::move(target), std::move(module)});
  }
  if (stage == Stage::Calls) {
    for (const std::string &warning : orderTargets(codes))
      llvm::errs() << "qwen-opt: warning: " << warning << '\n';
    checkShared(codes);
  }
  return codes;
}

/// Prints the stage that --emit names: the code of all targets, or one module
/// for each target, separated by MLIR's split marker.
static void emitStage(const std::string &stage,
                      llvm::ArrayRef<TargetCode> codes) {
  if (stage == "llvm" || stage == "asm") {
    llvm::LLVMContext context;
    Code code(codes);
    const std::unique_ptr<llvm::Module> whole = code.generate(0, context);
    for (size_t i = 1; i < code.parts(); ++i)
      linkModule(*whole, code.generate(i, context));
    llvm::outs() << (stage == "llvm" ? printIR(*whole)
                                     : emitAssembly(*whole, code.target()));
    return;
  }
  for (const auto &[target, module] : codes) {
    if (codes.size() > 1)
      llvm::outs() << (&module == &codes.front().module ? "" : "// -----\n")
                   << "// " << target.name << '\n';
    module.get()->print(llvm::outs());
  }
}

//===----------------------------------------------------------------------===//
// The summary
//===----------------------------------------------------------------------===//

static std::string withUnit(uint64_t bytes) {
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
    out << "  from " << storedTypeName(conversion.from) << ": "
        << conversion.matrices << " matrices, "
        << withUnit(conversion.bytesBefore) << ", "
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

static void printSummary(const Options &options, const ImportedModel &model,
                         llvm::ArrayRef<TargetCode> codes,
                         const ArtifactSummary &summary,
                         const std::vector<std::string> &verified,
                         double seconds) {
  mlir::ModuleOp module = *codes.front().module;
  const auto integer = [&](const char *attribute) {
    return static_cast<uint64_t>(
        module->getAttrOfType<mlir::IntegerAttr>(attribute).getInt());
  };
  std::map<std::string, std::pair<int, uint64_t>> formats;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    const auto layout = packed.getLayout();
    auto &[count, bytes] =
        formats[std::string(layout ? weightFormatName(layout->getFormat())
                                   : std::string_view("f32 vectors"))];
    count += static_cast<int>(packed.getSegments().size());
    bytes += static_cast<uint64_t>(packed.getByteSize());
  }

  const std::vector<CacheInfo> caches = cachesOf(module);
  const int64_t positionBytes = bytesOf(caches, CacheKind::Paged);
  const ModelConfig &config = model.checkpoint->config();
  llvm::raw_ostream &out = llvm::errs();
  out << options.output << ": " << infoOf(config.architecture).name << " for "
      << llvm::join(llvm::map_range(codes,
                                    [](const TargetCode &code) {
                                      return code.target.name;
                                    }),
                    ", ")
      << '\n';
  for (const auto &[format, tensors] : formats)
    out << "  " << format << ": " << tensors.first << " tensors, "
        << withUnit(tensors.second) << '\n';
  printConversions(summary.conversions, out);
  for (const auto *notes : {&model.checkpoint->config().notes,
                            &model.checkpoint->tensors().notes()})
    for (const std::string &note : *notes)
      out << "  " << note << '\n';
  for (const auto &[kind, names] : model.unusedTensors)
    out << "  not used, " << kind << ": " << shortList(names) << '\n';
  out << "  file: " << summary.fileBytes << " bytes (code "
      << withUnit(summary.codeBytes) << ", weights "
      << withUnit(summary.weightBytes) << ")\n"
      << "  arena: " << integer(kArenaBytesAttr) << " bytes for "
      << integer(kMaxTokensAttr) << " tokens and " << integer(kMaxRowsAttr)
      << " rows a call, whose logits take "
      << withUnit(integer(kMaxRowsAttr) * integer(kResultStrideAttr) *
                  sizeof(float))
      << '\n'
      << "  kv cache: " << kvFormatName(options.kvFormat()) << ", "
      << positionBytes << " bytes a token, " << positionBytes * kPageTokens
      << " a page of " << kPageTokens << '\n';
  if (const int64_t bytes = bytesOf(caches, CacheKind::Fixed))
    out << "  state: " << bytes << " bytes a sequence\n";
  for (const auto &[target, calls] : codes)
    out << "  kernels" << (codes.size() > 1 ? " of " + target.name : "") << ": "
        << llvm::join(calledKernels(*calls), ", ") << '\n';
  for (const std::string &line : verified)
    out << "  " << line << '\n';
  out << llvm::format("  %.1f seconds\n", seconds);
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

/// Address space of a compile with one malloc arena, without the mapped weight
/// files and the stacks of threads: 50 MiB for models/stories, and a reserve.
static constexpr uint64_t kWorkBytes = uint64_t{192} << 20;

/// Bytes of the stacks of all threads of a compile.
static uint64_t stackBytes() {
  pthread_attr_t defaults;
  size_t bytes = size_t{8} << 20;
  if (pthread_getattr_default_np(&defaults) == 0) {
    pthread_attr_getstacksize(&defaults, &bytes);
    pthread_attr_destroy(&defaults);
  }
  return uint64_t{machineThreads()} * bytes;
}

/// Throws Error if a limit (ulimit -v) leaves too little address space.
/// Otherwise the compiler's libraries would abort the process. Under a limit,
/// all threads share one malloc arena: glibc reserves up to 128 MiB for each
/// other one, so the need would depend on the number of cores.
static void checkAddressSpace(const std::string &checkpoint) {
  rlimit limit;
  uint64_t pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      !(std::ifstream("/proc/self/statm") >> pages))
    return;
  mallopt(M_ARENA_MAX, 1);
  const uint64_t needed = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) +
                          kWorkBytes + stackBytes() +
                          weightFileBytes(checkpoint);
  if (limit.rlim_cur < needed)
    throw Error("compiling " + checkpoint + " needs about " + withUnit(needed) +
                " of address space when ulimit -v allows " +
                withUnit(limit.rlim_cur));
}

/// Anonymous memory of a compile: for the shapes of Qwen2.5-0.5B 54 MiB with 2
/// threads and 143 with 64, and a reserve. Weights are mapped and take no
/// anonymous memory.
static constexpr uint64_t kAnonymousBytes = uint64_t{192} << 20;

/// Throws Error if a control group would kill the process while it compiles.
static void checkMemory(const std::string &checkpoint) {
  if (const auto limit = controlGroupMemory();
      limit && *limit < kAnonymousBytes)
    throw Error("compiling " + checkpoint + " needs about " +
                withUnit(kAnonymousBytes) +
                " of memory when its control group allows " + withUnit(*limit));
}

/// Bytes of the largest file that Halide writes to memory: below 20 KB, and a
/// reserve.
static constexpr uint64_t kCodeFileBytes = uint64_t{256} << 10;

/// Throws Error if a limit (ulimit -f) leaves no room for code. Otherwise
/// Halide would end the process with its own message.
static void checkFileSize(const std::string &checkpoint) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kCodeFileBytes)
    throw Error("compiling " + checkpoint + " needs files of up to " +
                withUnit(kCodeFileBytes) + " when ulimit -f allows " +
                withUnit(limit.rlim_cur));
}

/// Prints the warnings about a tokenizer's files. A chat template with an error
/// is only a warning, because `generate` does not need it.
static void printWarnings(const TokenizerImport &tokenizer) {
  for (const std::string &warning : tokenizer.warnings)
    llvm::errs() << "qwen-opt: warning: " << warning << '\n';
  if (tokenizer.chatTemplate.empty())
    return;
  try {
    ChatTemplate::parse(tokenizer.chatTemplate);
  } catch (const Error &error) {
    llvm::errs()
        << "qwen-opt: warning: " << tokenizer.chatTemplateFile.string() << ": "
        << error.what()
        << "; qwen-run chat will refuse the model, generate will not\n";
  }
}

/// Sets the limits of a call that the options name. Throws Error if a call
/// would have more rows than tokens.
static void setLimits(mlir::ModuleOp module, const Options &options) {
  const int64_t tokens = options.maxTokens.value_or(kDefaultMaxTokens);
  const int64_t rows =
      options.maxRows.value_or(std::min(kDefaultMaxRows, tokens));
  if (rows > tokens)
    throw Error("--max-rows " + std::to_string(rows) + " is more than the " +
                std::to_string(tokens) +
                " tokens of a call, which --max-tokens sets");
  mlir::Builder builder(module.getContext());
  module->setAttr(kMaxTokensAttr, builder.getI64IntegerAttr(tokens));
  module->setAttr(kMaxRowsAttr, builder.getI64IntegerAttr(rows));
}

static std::optional<TokenizerImport>
importTokenizer(const Checkpoint &checkpoint) {
  auto from = checkpoint.readTokenizer();
  if (!from)
    return std::nullopt;
  TokenizerImport tokenizer = buildTokenizer(std::move(*from));
  printWarnings(tokenizer);
  if (tokenizer.vocabSize > checkpoint.config().vocabSize)
    throw Error("the tokenizer has " + std::to_string(tokenizer.vocabSize) +
                " tokens when the embedding has " +
                std::to_string(checkpoint.config().vocabSize) + " rows");
  return tokenizer;
}

static void compile(Options options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Target> targets = resolveTargets(options.target);
  checkAddressSpace(options.checkpoint);
  checkMemory(options.checkpoint);
  checkFileSize(options.checkpoint);
  // Creates the output first, so that an error about it comes at once.
  std::optional<TemporaryFile> output;
  if (options.emit.empty())
    output.emplace(options.output);
  mlir::DialectRegistry registry;
  registry.insert<QwenDialect>();
  registerCodeGenDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();

  ImportedModel model =
      importCheckpoint(options.checkpoint, context, options.ignoredTensors);
  options.setWeights(*model.module);
  const ModelConfig &config = model.checkpoint->config();
  const int64_t positions = options.context.value_or(config.maxPosition);
  if (positions > config.maxPosition)
    throw Error("--context " + std::to_string(positions) + " is beyond the " +
                std::to_string(config.maxPosition) +
                " positions that the model was made for "
                "(max_position_embeddings, context_length, or seq_length of a "
                "Qwen 1)");
  setLimits(*model.module, options);
  const std::vector<TargetCode> codes =
      compileTargets(*model.module, options, std::move(targets));
  if (!options.emit.empty()) {
    emitStage(options.emit, codes);
    return;
  }

  const std::optional<TokenizerImport> tokenizer =
      importTokenizer(*model.checkpoint);
  const ArtifactInput input = {checkpointName(options.checkpoint), positions,
                               model.checkpoint.get(), &tokenizer};
  ArtifactSummary summary;
  std::vector<std::string> verified;
  {
    ProgressBar bar("packing");
    summary = writeArtifact(
        *output, codes, input,
        [&](uint64_t done, uint64_t total) { bar.update(done, total); },
        [&](const std::string &file) {
          if (options.verify)
            verified = verifyArtifact(file, options.runner, codes, input);
        });
  }
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  printSummary(options, model, codes, summary, verified, seconds.count());
}

static std::vector<std::string> weightFormatNames() {
  std::vector<std::string> names = {std::string(kKeep)};
  for (WeightFormat format : kWeightFormats)
    names.emplace_back(weightFormatName(format));
  return names;
}

int qwen::compileMain(int argc, char **argv) {
  Options options;
  CLI::App app("Compiles a Qwen checkpoint to one file for qwen-run.\n"
               "qwen-opt FILE.mlir runs passes (see qwen-opt - --help).\n"
               "qwen-opt report FILE prints the cost of a compiled model (see "
               "qwen-opt report --help).",
               "qwen-opt");
  app.set_version_flag("--version",
                       std::string("qwen-opt ") + projectVersion());
  CLI::Option *checkpoint = app.add_option(
      "CHECKPOINT", options.checkpoint,
      "a Hugging Face folder (config.json, *.safetensors, ...) or a GGUF file; "
      "of a split one, the first file");
  CLI::Option *output =
      app.add_option("-o", options.output, "file to write")->type_name("FILE");
  app.add_option("--target", options.target,
                 "native, a CPU (neoverse-n1, znver4, ...) or features in the "
                 "syntax of clang's -march; a list a,b,c makes one file that "
                 "runs the best target on each machine")
      ->capture_default_str();
  bool list = false, json = false;
  CLI::Option *listOption =
      app.add_flag("--list-targets", list,
                   "print the named CPUs, their features and their kernels");
  app.add_flag("--json", json, "print that list as JSON")->needs(listOption);
  app.add_option("--weights", options.weights,
                 "format of the matrices; keep is that of the checkpoint, or "
                 "the nearest; default is keep for a file of integers, else "
                 "q4_0")
      ->check(CLI::IsMember(weightFormatNames()));
  app.add_option(
         "--tensor-weights", options.tensorWeights,
         "format of the matrices whose names match a regular expression "
         "(RE2); repeatable, the last match wins")
      ->type_name("REGEX=FORMAT")
      ->allow_extra_args(false);
  app.add_option("--ignore-tensors", options.ignoredTensors,
                 "compile without the tensors that the model does not know "
                 "and whose names in the file match a regular expression "
                 "(RE2); repeatable")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  app.add_option("--kv", options.kv,
                 "format of the KV cache; default is f32 with f32 weights, "
                 "else f16")
      ->check(CLI::IsMember({"f16", "f32"}));
  addNumber(&app, "--context", options.context,
            "maximum length of a sequence; default is the checkpoint's "
            "maximum",
            1, int64_t{1} << 30);
  addNumber(&app, "--max-tokens", options.maxTokens,
            "maximum number of tokens in a call; default is " +
                std::to_string(kDefaultMaxTokens),
            1, kMostTokens);
  addNumber(&app, "--max-rows", options.maxRows,
            "maximum number of rows of logits in a call, which is the number "
            "of sequences that decode together; default is " +
                std::to_string(kDefaultMaxRows) +
                ", or --max-tokens if that "
                "is less",
            1, kMostTokens);
  CLI::Option *verify =
      app.add_flag("--verify", options.verify,
                   "compare every kernel with the reference before the file "
                   "gets its final name")
          ->needs(output);
  app.add_option("--runner", options.runner,
                 "command that runs the target's qwen-run on this machine, "
                 "such as 'qemu-aarch64-static -cpu max "
                 "build/aarch64/bin/qwen-run'")
      ->needs(verify);
  CLI::Option *emit =
      app.add_option("--emit", options.emit,
                     "print a stage to standard output instead of writing a "
                     "file")
          ->check(CLI::IsMember(
              {"graph", "quantized", "packed", "calls", "llvm", "asm"}))
          ->excludes(output);
  try {
    parseCommandLine(app, argc, argv);
    if (list) {
      listTargets(json);
      return 0;
    }
    if (checkpoint->empty())
      throw UsageError(app, "CHECKPOINT is missing");
    if (emit->empty() && output->empty())
      throw UsageError(app, "-o or --emit is missing");
  } catch (const CLI::Success &request) {
    return app.exit(request);
  } catch (const UsageError &error) {
    llvm::errs() << "qwen-opt: " << error.what() << '\n';
    return 2;
  }
  try {
    compile(options);
  } catch (const std::bad_alloc &) {
    llvm::errs() << "qwen-opt: out of memory\n";
    return 1;
  } catch (const std::exception &error) {
    llvm::errs() << "qwen-opt: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
