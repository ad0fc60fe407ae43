//===- Rotate.cpp - Rotations folded into weights -------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_ROTATE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// What is folded into the columns of a weight: the weight of a norm, if any,
/// and the rotation of blocks of `size`.
struct Columns {
  int64_t size;
  FlatSymbolRefAttr scales = {};
  bool operator==(const Columns &) const = default;
};

/// What is folded into a weight. `outputs` is the size of turned blocks.
struct Fold {
  std::optional<Columns> columns = {};
  /// Whether the columns undo a `qwen.hadamard`.
  std::optional<bool> hadamard = {};
  std::optional<int64_t> outputs = {};
  bool operator==(const Fold &) const = default;
};

/// A result of a program: the program's symbol and the name of the result.
using ResultName = std::pair<Attribute, Attribute>;

/// Collects the folds of all programs of a module, and then changes the
/// weights.
class Rotation {
public:
  explicit Rotation(ModuleOp module)
      : programs(programsOf(module)), symbols(module), builder(module) {
    WeightOp first = *module.getOps<WeightOp>().begin();
    builder.setInsertionPoint(first);
  }

  LogicalResult run();

private:
  using WeightFolds = llvm::MapVector<StringAttr, Fold>;

  void inspect(func::FuncOp program);
  bool readsStream(OpOperand &use) const;
  bool takesStream(OpOperand &use) const;
  bool beginsStream(Value value) const;
  LogicalResult add(func::FuncOp program);
  FailureOr<WeightFolds> foldsOfWeights();
  LogicalResult apply();

  void addArgument(BlockArgument argument);
  void addResults(func::ReturnOp op);
  LogicalResult addOp(Operation &op);
  LogicalResult addFirst(Operation &op);
  LogicalResult addReader(Operation &op, StreamUse use);
  LogicalResult addSum(Operation &op);
  LogicalResult addNorm(StreamOp op);
  LogicalResult addHeads(AttentionOp op);
  LogicalResult addHead(ForwardOp op);
  LogicalResult addHadamard(SwiGluOp op);
  void turnBack(OpOperand &operand);

  LogicalResult fold(Operation *op, FlatSymbolRefAttr weight, const Fold &part);
  LogicalResult foldMatrices(ForwardOp op, const Fold &part);
  LogicalResult foldProduct(Operation *op, Value product, int64_t size);
  LogicalResult foldOutputs(Operation *op, Value product, int64_t size);
  TurnOp turn(OpBuilder &at, StringRef name, Value tokens, bool back);
  FlatSymbolRefAttr vector(StringRef name, int64_t width, int64_t size,
                           SourceAttrInterface source);

  SmallVector<func::FuncOp> programs;
  SymbolTable symbols;
  OpBuilder builder;
  /// The turned values of the residual stream, and what turns them back.
  llvm::DenseSet<Value> stream;
  llvm::DenseMap<Value, Value> turnedBack;
  /// Sums that can be values of the stream.
  llvm::DenseSet<Value> sums;
  /// Results that stay turned, because another program reads them as the
  /// stream.
  llvm::DenseSet<ResultName> kept;
  /// By the ops that read weights, and the symbols of these.
  llvm::DenseMap<std::pair<Operation *, Attribute>, Fold> folds;
};
} // namespace

//===----------------------------------------------------------------------===//
// What is folded
//===----------------------------------------------------------------------===//

static LogicalResult refuseFold(Operation *op, Attribute weight) {
  return op->emitOpError() << "reads " << weight
                           << ", which another op needs with another rotation";
}

/// Adds `part` to what `op` needs to be folded into `weight`.
LogicalResult Rotation::fold(Operation *op, FlatSymbolRefAttr weight,
                             const Fold &part) {
  Fold &whole = folds[{op, weight}];
  const auto add = [](auto &to, const auto &from) {
    if (!to)
      to = from;
    return !from || to == from;
  };
  if (add(whole.columns, part.columns) && add(whole.hadamard, part.hadamard) &&
      add(whole.outputs, part.outputs))
    return success();
  return refuseFold(op, weight);
}

LogicalResult Rotation::foldMatrices(ForwardOp op, const Fold &part) {
  for (FlatSymbolRefAttr matrix : matricesOf(op))
    if (failed(fold(op, matrix, part)))
      return failure();
  return success();
}

/// The op whose product, and bias, `value` is, if a rotation can be folded into
/// the outputs of all that it sums up; else null.
static ForwardOp producerOf(Value value) {
  auto bias = value.getDefiningOp<AddBiasOp>();
  auto writer = (bias ? bias.getInput() : value).getDefiningOp<ForwardOp>();
  const bool canFold =
      writer && writer.getSummands() && (!bias || bias.getInput().hasOneUse());
  return canFold ? writer : ForwardOp();
}

/// Folds the rotation of blocks of `size` outputs into the product, and all
/// that is added to it. It has a writer; `op` needs the fold.
LogicalResult Rotation::foldProduct(Operation *op, Value product,
                                    int64_t size) {
  ForwardOp writer = producerOf(product);
  if (auto bias = product.getDefiningOp<AddBiasOp>();
      bias && failed(fold(bias, bias.getBiasAttr(), {.outputs = size})))
    return failure();
  const auto summands = writer.getSummands();
  for (Value summand : *summands)
    if (failed(foldOutputs(op, summand, size)))
      return failure();
  return foldMatrices(writer, {.outputs = size});
}

/// Folds the rotation of blocks of `size` outputs into the product, and all
/// that is added to it, that only `op` reads.
LogicalResult Rotation::foldOutputs(Operation *op, Value product,
                                    int64_t size) {
  if (producerOf(product) && product.hasOneUse())
    return foldProduct(op, product, size);
  return op->emitOpError() << "needs a product of its own, before fusion, to "
                              "fold a rotation into";
}

/// Turns the products that `op` adds to the stream.
LogicalResult Rotation::addSum(Operation &op) {
  for (Value operand : op.getOperands())
    if (!stream.contains(operand) &&
        failed(foldOutputs(&op, operand, widthOf(operand))))
      return failure();
  stream.insert(op.getResult(0));
  return success();
}

/// Whether `op` norms what products, before fusion, alone read.
static bool isBeforeProducts(Operation *op) {
  if (streamUseOf(op) != StreamUse::Norms || op->use_empty())
    return false;
  return llvm::all_of(op->getResult(0).getUses(), [](OpOperand &use) {
    ForwardOp product = productOf(use);
    return product && !product.getInPlaceOperand() &&
           streamUseOf(product) == StreamUse::Other;
  });
}

/// Folds the factors of a norm over the stream into the products behind it.
/// What another op reads is the norm of what was turned back.
LogicalResult Rotation::addNorm(StreamOp op) {
  if (!isBeforeProducts(op)) {
    turnBack(op->getOpOperand(0));
    return success();
  }
  const Value normed = op->getResult(0);
  const int64_t width = widthOf(normed);
  for (OpOperand &use : normed.getUses())
    if (failed(
            foldMatrices(productOf(use),
                         {.columns = Columns{width, op.getChannelFactors()}})))
      return failure();
  op.setChannelFactors(
      vector("rotation.ones", width, width, OnesAttr::get(op.getContext())));
  return success();
}

/// The product that alone reads `value`, or null.
static ForwardOp productBehind(Value value) {
  return value.hasOneUse() ? productOf(*value.use_begin()) : nullptr;
}

/// Turns the heads of v, if only a product reads what attention makes of them.
LogicalResult Rotation::addHeads(AttentionOp op) {
  const Value weighed = op.getWeighed();
  ForwardOp product = productBehind(op.getResult());
  if (!weighed || !product)
    return success();
  const int64_t size = op.getHeadDim();
  if (failed(foldOutputs(op, weighed, size)))
    return failure();
  return foldMatrices(product, {.columns = Columns{size}});
}

//===----------------------------------------------------------------------===//
// Activations that are turned
//===----------------------------------------------------------------------===//

/// The vector `name` of `size` values for tokens of `width` values; one of
/// another width than the first has the width in its name.
FlatSymbolRefAttr Rotation::vector(StringRef name, int64_t width, int64_t size,
                                   SourceAttrInterface source) {
  const auto type = RankedTensorType::get(size, builder.getF32Type());
  std::string own = name.str();
  auto weight = symbols.lookup<WeightOp>(own);
  if (weight && (weight.getType() != type || weight.getSource() != source)) {
    own += "." + std::to_string(width);
    weight = symbols.lookup<WeightOp>(own);
  }
  if (!weight) {
    weight = WeightOp::create(
        builder, NameLoc::get(builder.getStringAttr(own)), own, type, source,
        /*exact=*/false, FormatAttr(), FlatSymbolRefAttr());
    symbols.insert(weight);
  }
  return FlatSymbolRefAttr::get(builder.getContext(), own);
}

TurnOp Rotation::turn(OpBuilder &at, StringRef name, Value tokens, bool back) {
  const int64_t size = widthOf(tokens);
  TurnOp::Properties properties;
  if (back)
    properties.setBack(at.getUnitAttr());
  properties.setRotation(vector("rotation.values", size,
                                size + numerics::oddPart(size),
                                RotationAttr::get(at.getContext(), size)));
  return TurnOp::create(at, NameLoc::get(at.getStringAttr(name)),
                        TypeRange(tokens.getType()), ValueRange(tokens),
                        properties);
}

/// Transforms the activations of a feed-forward network before its last
/// product. The gate of linear attention reads a norm.
LogicalResult Rotation::addHadamard(SwiGluOp op) {
  auto up = op.getUp().getDefiningOp<ForwardOp>();
  ForwardOp product = productBehind(op.getResult());
  if (!up || !up.getProductInput() || !product)
    return success();
  OpBuilder at(product);
  product.getProductInput()->assign(
      HadamardOp::create(at, op.getLoc(), op.getResult()));
  return foldMatrices(product, {.hadamard = true});
}

/// Lets an op read a value of the stream as it is without rotations.
void Rotation::turnBack(OpOperand &operand) {
  Value &plain = turnedBack[operand.get()];
  if (!plain) {
    OpBuilder at(operand.getOwner());
    plain = turn(at, "turn_back", operand.get(), /*back=*/true);
  }
  operand.set(plain);
}

/// The norm before the head leaves hidden values as the model's.
LogicalResult Rotation::addHead(ForwardOp op) {
  OpBuilder at(op);
  OpOperand &input = *op.getProductInput();
  input.assign(turn(at, "turn", input.get(), /*back=*/false));
  return foldMatrices(op, {.columns = Columns{widthOf(input.get())}});
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

/// Whether an op can read activations as the turned stream, and computes
/// nothing for that.
bool Rotation::readsStream(OpOperand &use) const {
  Operation *op = use.getOwner();
  return isBeforeProducts(op) || (streamUseOf(op) == StreamUse::Adds &&
                                  sums.contains(op->getResult(0)));
}

/// Whether an op can take a value of the stream, turned or turned back.
bool Rotation::takesStream(OpOperand &use) const {
  const StreamUse of = streamUseOf(use.getOwner());
  return of == StreamUse::Norms || of == StreamUse::Leaves ||
         isa<func::ReturnOp>(use.getOwner()) || readsStream(use);
}

/// Whether a product is the first value of the stream: norms read it, as well
/// as the sums of layers.
bool Rotation::beginsStream(Value value) const {
  const auto isNormed = [](Operation *user) { return isBeforeProducts(user); };
  return llvm::any_of(value.getUsers(), isNormed) &&
         llvm::all_of(value.getUses(),
                      [&](OpOperand &use) { return takesStream(use); });
}

/// Turns what `op`, which reads no stream, computes if that is the first value
/// of one.
LogicalResult Rotation::addFirst(Operation &op) {
  if (op.getNumResults() != 1 || !beginsStream(op.getResult(0)))
    return success();
  const Value value = op.getResult(0);
  if (!producerOf(value))
    return success();
  stream.insert(value);
  return foldProduct(&op, value, widthOf(value));
}

/// The result that an argument reads, if another program leaves it.
static ResultName resultOf(BlockArgument argument) {
  auto program = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  const unsigned i = argument.getArgNumber();
  return {program.getArgAttr(i, kFromAttr), program.getArgAttr(i, kNameAttr)};
}

static ResultName resultOf(OpOperand &returned) {
  auto program = cast<func::FuncOp>(returned.getOwner()->getParentOp());
  return {FlatSymbolRefAttr::get(program.getSymNameAttr()),
          program.getResultAttr(returned.getOperandNumber(), kNameAttr)};
}

/// Finds the sums of `program`, and the results of others that it reads as the
/// stream.
void Rotation::inspect(func::FuncOp program) {
  for (Operation &op : llvm::reverse(program.front()))
    if (streamUseOf(&op) == StreamUse::Adds &&
        llvm::all_of(op.getResult(0).getUses(),
                     [&](OpOperand &use) { return takesStream(use); }))
      sums.insert(op.getResult(0));
  for (BlockArgument argument : program.getArguments())
    if (const ResultName result = resultOf(argument);
        result.first && llvm::any_of(argument.getUses(), [&](OpOperand &use) {
          return readsStream(use);
        }))
      kept.insert(result);
}

/// Gives the ops of a program an argument as they read it, turned or plain.
void Rotation::addArgument(BlockArgument argument) {
  const bool isTurned = kept.contains(resultOf(argument));
  SmallVector<OpOperand *> others;
  for (OpOperand &use : argument.getUses())
    if (readsStream(use) != isTurned)
      others.push_back(&use);
  if (isTurned)
    stream.insert(argument);
  if (others.empty())
    return;
  auto at = OpBuilder::atBlockBegin(argument.getOwner());
  const Value other =
      turn(at, isTurned ? "turn_back" : "turn", argument, /*back=*/isTurned);
  if (!isTurned)
    stream.insert(other);
  for (OpOperand *use : others)
    use->set(other);
}

/// Turns results back, but those that stay turned.
void Rotation::addResults(func::ReturnOp op) {
  for (OpOperand &operand : op->getOpOperands())
    if (!stream.contains(operand.get()))
      kept.erase(resultOf(operand));
    else if (!kept.contains(resultOf(operand)))
      turnBack(operand);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Adds an op that reads the stream.
LogicalResult Rotation::addReader(Operation &op, StreamUse use) {
  switch (use) {
  case StreamUse::Adds:
    return addSum(op);
  case StreamUse::Norms:
    return addNorm(cast<StreamOp>(op));
  case StreamUse::Leaves:
    turnBack(op.getOpOperand(0));
    return success();
  default:
    return op.emitOpError()
           << "reads the residual stream, which only norms over it, additions "
              "and qwen.wanted_tokens can when it is turned";
  }
}

LogicalResult Rotation::addOp(Operation &op) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return addHeads(attention);
  if (auto gated = dyn_cast<SwiGluOp>(op))
    return addHadamard(gated);
  if (auto end = dyn_cast<func::ReturnOp>(op)) {
    addResults(end);
    return success();
  }
  const StreamUse use = streamUseOf(&op);
  if (use == StreamUse::Heads)
    return addHead(cast<ForwardOp>(op));
  if (use == StreamUse::Starts) {
    stream.insert(op.getResult(0));
    return foldMatrices(cast<ForwardOp>(op),
                        {.columns = Columns{widthOf(op.getResult(0))}});
  }
  if (llvm::none_of(op.getOperands(),
                    [&](Value value) { return stream.contains(value); }))
    return addFirst(op);
  return addReader(op, use);
}

LogicalResult Rotation::add(func::FuncOp program) {
  // Not those that turn activations.
  const auto ops = llvm::to_vector(llvm::make_pointer_range(program.front()));
  for (BlockArgument argument : program.getArguments())
    if (!isTokenIntegers(argument.getType()))
      addArgument(argument);
  for (Operation *op : ops)
    if (failed(addOp(*op)))
      return failure();
  return success();
}

/// What is folded into each weight. Fails if ops need other folds.
FailureOr<Rotation::WeightFolds> Rotation::foldsOfWeights() {
  WeightFolds all;
  for (func::FuncOp program : programs) {
    const auto uses = SymbolTable::getSymbolUses(&program.getBody());
    for (const SymbolTable::SymbolUse &use : *uses) {
      const auto symbol = cast<FlatSymbolRefAttr>(use.getSymbolRef());
      const Fold needed = folds.lookup({use.getUser(), symbol});
      if (all.try_emplace(symbol.getAttr(), needed).first->second != needed)
        return refuseFold(use.getUser(), symbol);
    }
  }
  return all;
}

/// Changes the weights.
LogicalResult Rotation::apply() {
  const FailureOr<WeightFolds> all = foldsOfWeights();
  if (failed(all))
    return failure();
  // Nobody reads the weights of norms that are folded everywhere.
  llvm::SmallSetVector<WeightOp, 16> norms;
  for (const auto &[name, part] : *all) {
    if (part == Fold())
      continue;
    auto weight = symbols.lookup<WeightOp>(name);
    const Columns columns = part.columns.value_or(Columns{0});
    SourceAttrInterface scales;
    if (columns.scales) {
      auto norm = symbols.lookup<WeightOp>(columns.scales.getValue());
      scales = norm.getSource();
      norms.insert(norm);
    }
    auto type = cast<RankedTensorType>(weight.getType());
    weight.setType(type.clone(builder.getF32Type()));
    weight.setSourceAttr(TurnedAttr::get(
        weight.getContext(), weight.getSource(), scales, columns.size,
        part.hadamard.value_or(false), part.outputs.value_or(0)));
    if (failed(weight.verify()))
      return failure();
  }
  for (WeightOp norm : norms)
    if (SymbolTable::symbolKnownUseEmpty(norm, symbols.getOp()))
      symbols.erase(norm);
  return success();
}

LogicalResult Rotation::run() {
  for (func::FuncOp program : programs)
    inspect(program);
  for (func::FuncOp program : programs)
    if (failed(add(program)))
      return failure();
  return apply();
}

namespace {
struct Rotate final : qwen::impl::RotateBase<Rotate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (module.getOps<WeightOp>().empty())
      return;
    if (failed(Rotation(module).run()))
      signalPassFailure();
  }
};
} // namespace
