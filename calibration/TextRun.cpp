//===- TextRun.cpp - A text through a model, part by part -----------------===//

#include "calibration/TextRun.h"

#include "calibration/ProgramBuilder.h"
#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <bit>
#include <numeric>

using namespace qwen;

static constexpr char kProgram[] = "sublayer", kHidden[] = "hidden",
                      kAfter[] = "after";
/// Tokens of a call, in which products reach their full speed.
static constexpr int64_t kCallTokens = 1024;

struct TextRun::Program {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  WeightSources weights;
};

struct TextRun::Kind {
  /// At stage "calls".
  mlir::OwningOpRef<mlir::ModuleOp> module;
  LoadedPrograms programs;
};

struct TextRun::Head {
  MemoryFile file;
  std::optional<Mapping> image;
  std::optional<Engine> engine;
};

TextRun::~TextRun() = default;

TextRun::TextRun(mlir::ModuleOp module, const WeightSources &weights,
                 std::span<const int32_t> ids, int64_t window, ThreadPool &pool,
                 Place place)
    : module(module), weights(weights), ids(ids), window(window), pool(pool),
      width(modelFact(module, "hidden_size")),
      stream(ids.size() * static_cast<size_t>(width) * sizeof(float), place,
             "the residual stream of the calibration text") {}

void TextRun::embed(EmbeddingOp embedding) {
  auto weight =
      mlir::SymbolTable(module).lookup<WeightOp>(embedding.getWeight());
  const WeightSourcePtr source = weight.open(weights);
  float *to = stream.as<float>();
  for (size_t i = 0; i < ids.size(); ++i, to += width)
    source->read(ids[i], 1, to);
}

/// The names of input `i`, and of the experts that its tokens chose, among the
/// results of a program.
static std::string inputName(size_t i) { return "input" + std::to_string(i); }
static std::string idsName(size_t i) { return "ids" + std::to_string(i); }

/// Moves the weights that `program` reads to a module of its own, under names
/// by their order. Adds their sources to `to`.
static void nameWeights(ProgramBuilder &program, mlir::ModuleOp from,
                        const WeightSources &sources, WeightSources &to) {
  mlir::SymbolTable symbols(from);
  llvm::SmallVector<mlir::StringAttr> names;
  const auto uses =
      mlir::SymbolTable::getSymbolUses(program.program().getOperation());
  for (const mlir::SymbolTable::SymbolUse &use : *uses) {
    const mlir::StringAttr name = use.getSymbolRef().getRootReference();
    if (!llvm::is_contained(names, name))
      names.push_back(name);
  }
  mlir::OpBuilder builder(program.program());
  for (auto [i, name] : llvm::enumerate(names)) {
    const auto own = builder.getStringAttr("w" + std::to_string(i));
    auto weight =
        llvm::cast<WeightOp>(builder.clone(*symbols.lookup<WeightOp>(name)));
    weight.setSymNameAttr(own);
    to.set(own.str(), {weight.open(sources), {}});
    // In f32 it does not matter where the values come from. They get an image
    // of their own.
    weight.removeImageAttr();
    weight.setSourceAttr(
        SourceAttr::get(builder.getContext(), own, FormatAttr()));
    if (failed(mlir::SymbolTable::replaceAllSymbolUses(
            name, own, program.program().getOperation())))
      throw Error("the weight " + quote(name.getValue()) +
                  " cannot get another name");
  }
}

TextRun::Program TextRun::emptyProgram() {
  Program made = {
      mlir::ModuleOp::create(mlir::UnknownLoc::get(module.getContext())), {}};
  (*made.module)->setAttr(kStageAttr, module->getAttr(kStageAttr));
  return made;
}

TextRun::Program TextRun::makeProgram(const Sublayer &sublayer) {
  mlir::MLIRContext *context = module.getContext();
  Program made = emptyProgram();
  mlir::func::FuncOp forward = programsOf(module).front();
  ProgramBuilder builder(
      *made.module, kProgram, forward,
      {activationsType(context, width), integersType(context)});
  const int64_t tokens = std::max(window, kCallTokens / window * window);
  builder.setLimits(tokens, tokens);
  builder.useCachesOf(0);
  builder.nameArgument(0, kHidden);
  builder.map(sublayer.input, builder.argument(0));
  builder.map(forward.getArgument(1), builder.argument(1));
  llvm::SmallVector<std::pair<std::string, mlir::Value>> results;
  for (auto [i, input] : llvm::enumerate(sublayer.inputs)) {
    results.emplace_back(inputName(i), builder.copy(input.rows));
    if (input.ids)
      results.emplace_back(idsName(i), builder.copy(input.ids));
  }
  if (sublayer.result)
    results.emplace_back(kAfter, builder.copy(sublayer.result));
  if (builder.argument(1).use_empty())
    (void)builder.program().eraseArgument(1);
  builder.finish(results);
  nameWeights(builder, module, weights, made.weights);
  return made;
}

std::unique_ptr<TextRun::Head> TextRun::makeHead(const Sublayer &head) {
  Program made = emptyProgram();
  ProgramBuilder builder(*made.module, kProgram, programsOf(module).front(),
                         {activationsType(module.getContext(), width)});
  builder.setLimits(kHeadRows, kHeadRows);
  builder.nameArgument(0, kHidden);
  builder.map(head.input, builder.argument(0));
  LmHeadOp op;
  for (mlir::Operation *user : head.inputs.front().rows.getUsers())
    if (auto found = llvm::dyn_cast<LmHeadOp>(user))
      op = found;
  builder.finish({{std::string(), builder.copy(op.getResult())}});
  nameWeights(builder, module, weights, made.weights);
  Kind &kind = kindOf(made);
  auto result = std::make_unique<Head>();
  packImage(*kind.module, made.weights, result->file);
  result->image.emplace(mapImage(result->file));
  result->engine.emplace(kind.programs.manifest, result->image->data(),
                         kind.programs.entries, pool, EngineOptions());
  return result;
}

int64_t TextRun::headWidth() const {
  return headProgram->engine->manifest().forward().logits()->stride;
}

std::span<const float> TextRun::logits(const Sublayer &head,
                                       std::span<const float> rows) {
  if (!headProgram)
    headProgram = makeHead(head);
  Engine &engine = *headProgram->engine;
  const int64_t count = std::ssize(rows) / width;
  std::vector<Token> batch;
  batch.reserve(static_cast<size_t>(count));
  const SequenceId sequence = engine.state().open();
  for (int64_t i = 0; i < count; ++i)
    batch.push_back({-1, sequence, i, true});
  const InputRows given = {kHidden, rows};
  engine.call(kProgram, batch, {&given, 1});
  engine.state().close(sequence);
  return {engine.row(kProgram, kLogitsName, 0).data(),
          batch.size() * static_cast<size_t>(headWidth())};
}

TextRun::Kind &TextRun::kindOf(Program &program) {
  std::string text;
  llvm::raw_string_ostream(text) << *program.module;
  std::shared_ptr<Kind> &kind = kinds[text];
  if (!kind) {
    const ProgramCode code = compileProgram(*program.module);
    // Rows of the head have positions, too, up to kHeadRows.
    kind.reset(new Kind{std::move(program.module),
                        {code, std::max(window, kHeadRows)}});
  }
  return *kind;
}

void TextRun::run(const Sublayer &sublayer, const ReceiveFn &receive) {
  Program program = makeProgram(sublayer);
  const Kind &kind = kindOf(program);
  MemoryFile image;
  packImage(*kind.module, program.weights, image);
  try {
    runCalls(sublayer, kind, mapImage(image).data(), receive);
  } catch (const Error &error) {
    throw Error("calibration stops in " + part::subject(sublayer.name) + ": " +
                    error.what(),
                error.kind());
  }
}

/// Gives each expert its rows. `read` has a row for each of its tokens, or for
/// each of their choices, by expert. `ids` has the experts of one token after
/// another.
static void divideByExpert(const ProductInput &input, ReadRows read,
                           const float *ids,
                           const TextRun::ReceiveFn &receive) {
  std::vector<std::vector<int64_t>> chosenBy(
      static_cast<size_t>(input.experts));
  for (int64_t i = 0; i < std::ssize(read.tokens) * input.choices(); ++i)
    chosenBy[std::bit_cast<uint32_t>(ids[i])].push_back(i / input.choices());
  const auto k = static_cast<size_t>(widthOf(input.rows));
  const bool isOfChoices = isExpertActivations(input.rows.getType());
  std::span<const float> rows = read.rows;
  std::vector<float> gathered;
  std::vector<int64_t> tokens;
  for (size_t expert = 0; expert < chosenBy.size(); ++expert) {
    const size_t count = chosenBy[expert].size();
    if (count == 0)
      continue;
    tokens.clear();
    gathered.clear();
    for (int64_t token : chosenBy[expert]) {
      tokens.push_back(read.tokens[static_cast<size_t>(token)]);
      if (!isOfChoices)
        llvm::append_range(gathered,
                           rows.subspan(static_cast<size_t>(token) * k, k));
    }
    receive({read.input, expert,
             isOfChoices ? rows.first(count * k) : std::span(gathered),
             tokens});
    if (isOfChoices)
      rows = rows.subspan(count * k);
  }
}

void TextRun::runCalls(const Sublayer &sublayer, const Kind &kind,
                       const uint8_t *image, const ReceiveFn &receive) {
  const ProgramInfo &program = kind.programs.manifest.programs.front();
  const int64_t callTokens = program.limits.tokens;
  EngineOptions options;
  options.sequences = static_cast<int32_t>(callTokens / window);
  options.snapshotBytes = 0;
  Engine engine(kind.programs.manifest, image, kind.programs.entries, pool,
                options);
  const auto total = static_cast<int64_t>(ids.size());
  const auto rowsOf = [&](const std::string &name, int64_t tokens) {
    return std::span(
        engine.row(kProgram, name, 0).data(),
        static_cast<size_t>(tokens *
                            ProgramInfo::find(program.outputs, name)->stride));
  };
  std::vector<Token> batch;
  for (int64_t first = 0; first < total; first += callTokens) {
    const int64_t tokens = std::min(callTokens, total - first);
    batch.clear();
    // The last sublayer runs on the wanted tokens: a text wants all.
    for (int64_t i = 0; i < tokens; ++i)
      batch.push_back(
          {-1, i % window == 0 ? engine.state().open() : batch.back().sequence,
           i % window, true});
    const std::span<float> rows =
        this->rows().subspan(static_cast<size_t>(first * width),
                             static_cast<size_t>(tokens * width));
    const InputRows given = {kHidden, rows};
    engine.call(kProgram, batch, {&given, 1});
    std::vector<int64_t> numbers(static_cast<size_t>(tokens));
    std::iota(numbers.begin(), numbers.end(), first);
    for (auto [i, input] : llvm::enumerate(sublayer.inputs)) {
      const ReadRows read = {
          i, 0, rowsOf(inputName(i), tokens * choicesOfToken(input.rows)),
          numbers};
      if (input.ids)
        divideByExpert(input, read, rowsOf(idsName(i), tokens).data(), receive);
      else
        receive(read);
    }
    if (sublayer.result)
      std::ranges::copy(rowsOf(kAfter, tokens), rows.begin());
    for (int64_t i = 0; i < tokens; i += window)
      engine.state().close(batch[static_cast<size_t>(i)].sequence);
  }
}
