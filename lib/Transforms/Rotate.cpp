//===- Rotate.cpp - Rotations folded into weights -------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Transforms/Passes.h"

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
};

/// Collects the folds of all programs of a module, and then changes the
/// weights.
class Rotation {
public:
  explicit Rotation(ModuleOp module) : symbols(module), builder(module) {
    WeightOp first = *module.getOps<WeightOp>().begin();
    builder.setInsertionPoint(first);
  }

  LogicalResult add(func::FuncOp program);
  LogicalResult apply();

private:
  LogicalResult addOp(Operation &op);
  LogicalResult addReader(Operation &op, StreamUse use);
  LogicalResult addSum(Operation &op);
  LogicalResult addNorm(StreamOp op);
  LogicalResult addHeads(AttentionOp op);
  LogicalResult addHead(ForwardOp op);
  LogicalResult addHadamard(SwiGluOp op);
  void turnBack(Operation &op);

  LogicalResult fold(Operation *op, FlatSymbolRefAttr weight, const Fold &part);
  LogicalResult foldMatrices(ForwardOp op, const Fold &part);
  LogicalResult foldOutputs(Operation *op, Value product, int64_t size);
  TurnOp turn(OpBuilder &at, StringRef name, Value tokens, bool back);
  FlatSymbolRefAttr vector(StringRef name, int64_t size,
                           SourceAttrInterface source);

  SymbolTable symbols;
  OpBuilder builder;
  /// The values of the residual stream.
  llvm::DenseSet<Value> stream;
  /// By the names of weights.
  llvm::MapVector<StringAttr, Fold> folds;
};
} // namespace

//===----------------------------------------------------------------------===//
// What is folded
//===----------------------------------------------------------------------===//

/// Adds `part` to what is folded into `weight`, which `op` reads.
LogicalResult Rotation::fold(Operation *op, FlatSymbolRefAttr weight,
                             const Fold &part) {
  Fold &whole = folds[weight.getAttr()];
  const auto add = [](auto &to, const auto &from) {
    if (!to)
      to = from;
    return !from || to == from;
  };
  if (add(whole.columns, part.columns) && add(whole.hadamard, part.hadamard) &&
      add(whole.outputs, part.outputs))
    return success();
  return op->emitOpError() << "reads " << weight
                           << ", which another op needs with another rotation";
}

LogicalResult Rotation::foldMatrices(ForwardOp op, const Fold &part) {
  for (FlatSymbolRefAttr matrix : matricesOf(op))
    if (failed(fold(op, matrix, part)))
      return failure();
  return success();
}

/// Folds the rotation of blocks of `size` outputs into the product, and all
/// that is added to it, that only `op` reads.
LogicalResult Rotation::foldOutputs(Operation *op, Value product,
                                    int64_t size) {
  auto bias = product.getDefiningOp<AddBiasOp>();
  const Value before = bias ? bias.getInput() : product;
  auto writer = before.getDefiningOp<ForwardOp>();
  const auto summands = writer ? writer.getSummands() : std::nullopt;
  if (!summands || !product.hasOneUse() || !before.hasOneUse())
    return op->emitOpError() << "needs a product of its own, before fusion, to "
                                "fold a rotation into";
  if (bias && failed(fold(bias, bias.getBiasAttr(), {.outputs = size})))
    return failure();
  for (Value summand : *summands)
    if (failed(foldOutputs(op, summand, size)))
      return failure();
  return foldMatrices(writer, {.outputs = size});
}

/// Turns the products that `op` adds to the stream.
LogicalResult Rotation::addSum(Operation &op) {
  bool hasStream = false;
  for (Value operand : op.getOperands())
    if (!hasStream && stream.contains(operand))
      hasStream = true;
    else if (failed(foldOutputs(&op, operand, widthOf(operand))))
      return failure();
  stream.insert(op.getResult(0));
  return success();
}

/// Folds the factors of a norm over the stream into the products behind it.
LogicalResult Rotation::addNorm(StreamOp op) {
  const Value normed = op->getResult(0);
  const int64_t width = widthOf(normed);
  for (OpOperand &use : normed.getUses()) {
    ForwardOp product = productOf(use);
    if (!product || product.getInPlaceOperand() ||
        streamUseOf(product) != StreamUse::Other)
      return op.emitOpError() << "is read by '" << use.getOwner()->getName()
                              << "' when only a product, before fusion, can";
    if (failed(foldMatrices(
            product, {.columns = Columns{width, op.getChannelFactors()}})))
      return failure();
  }
  op.setChannelFactors(
      vector("rotation.ones", width, OnesAttr::get(op.getContext())));
  return success();
}

/// The product that alone reads `value`, or null.
static ForwardOp productBehind(Value value) {
  return value.hasOneUse() ? productOf(*value.use_begin()) : nullptr;
}

/// Turns the heads of v, if only a product reads what attention makes of them.
LogicalResult Rotation::addHeads(AttentionOp op) {
  AppendOp append = op.getAppend();
  ForwardOp product = productBehind(op.getResult());
  if (!append || !product)
    return success();
  const int64_t size = op.getHeadDim();
  if (failed(foldOutputs(op, append.getValues(), size)))
    return failure();
  return foldMatrices(product, {.columns = Columns{size}});
}

//===----------------------------------------------------------------------===//
// Activations that are turned
//===----------------------------------------------------------------------===//

/// The vector `name` of `size` values.
FlatSymbolRefAttr Rotation::vector(StringRef name, int64_t size,
                                   SourceAttrInterface source) {
  if (!symbols.lookup(name)) {
    auto weight = WeightOp::create(
        builder, NameLoc::get(builder.getStringAttr(name)), name,
        RankedTensorType::get(size, builder.getF32Type()), source,
        /*exact=*/false, FormatAttr());
    symbols.insert(weight);
  }
  return FlatSymbolRefAttr::get(builder.getContext(), name);
}

TurnOp Rotation::turn(OpBuilder &at, StringRef name, Value tokens, bool back) {
  const int64_t size = widthOf(tokens);
  TurnOp::Properties properties;
  if (back)
    properties.setBack(at.getUnitAttr());
  properties.setRotation(vector("rotation.values",
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

void Rotation::turnBack(Operation &op) {
  OpBuilder at(&op);
  op.setOperand(0, turn(at, "turn_back", op.getOperand(0), /*back=*/true));
}

/// The norm before the head leaves hidden values as the model's.
LogicalResult Rotation::addHead(ForwardOp op) {
  OpBuilder at(op);
  OpOperand &input = *op.getProductInput();
  input.assign(turn(at, "turn", input.get(), /*back=*/false));
  return foldMatrices(op, {.columns = Columns{widthOf(input.get())}});
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
    turnBack(op);
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
    return success();
  return addReader(op, use);
}

LogicalResult Rotation::add(func::FuncOp program) {
  for (Type type : program.getArgumentTypes())
    if (!isTokenIntegers(type))
      return program.emitError()
             << "program @" << program.getSymName() << " takes " << type
             << " when only ids and positions can be the arguments of a "
                "program that is rotated";
  for (Operation &op : llvm::make_early_inc_range(program.front()))
    if (failed(addOp(op)))
      return failure();
  return success();
}

LogicalResult Rotation::apply() {
  // Nobody reads the weights of norms that are folded everywhere.
  llvm::SmallSetVector<WeightOp, 16> norms;
  for (const auto &[name, part] : folds) {
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

namespace {
struct Rotate final : qwen::impl::RotateBase<Rotate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (module.getOps<WeightOp>().empty())
      return;
    Rotation rotation(module);
    for (func::FuncOp program : programsOf(module))
      if (failed(rotation.add(program)))
        return signalPassFailure();
    if (failed(rotation.apply()))
      signalPassFailure();
  }
};
} // namespace
