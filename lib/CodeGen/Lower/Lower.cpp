//===- Lower.cpp - Planned IR to calls of kernels -------------------------===//

#include "qwen/CodeGen/Lower/Lower.h"

#include "Instances.h"

#include "qwen/ABI/Program.h"
#include "qwen/CodeGen/Lower/CacheList.h"
#include "qwen/CodeGen/Lower/Work.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_LOWER
#include "qwen/CodeGen/Lower/Passes.h.inc"
} // namespace qwen

//===----------------------------------------------------------------------===//
// Facts of a planned function
//===----------------------------------------------------------------------===//

/// Whether `op` works for the logits only: the op behind the hidden values.
static bool isForLogits(ForwardOp op) {
  return isa<LmHeadOp>(op.getOperation()) ||
         (isa<TurnOp>(op.getOperation()) &&
          llvm::any_of(op->getUsers(), llvm::IsaPred<LmHeadOp>));
}

/// What `use` reads of the call: the name of an argument with an integer for
/// each token.
static std::string_view tokenArgumentName(OpOperand &use) {
  if (isa<AttentionOp>(use.getOwner()))
    return kWindowsName;
  if (auto table = dyn_cast<RopeTableOp>(use.getOwner()))
    return table.getSections() ? kAxisNames[use.getOperandNumber()]
                               : kPositionsName;
  return kIdsName;
}

/// The op's path in the model, from its location, or its name and number.
/// Fusion splits some ops off a module of the model: such an op has its own
/// name behind the module's.
static std::string opName(Operation *op, int64_t id) {
  std::string name;
  op->getLoc()->walk([&](Location location) {
    auto named = dyn_cast<NameLoc>(location);
    if (!named)
      return WalkResult::advance();
    name = named.getName().str();
    return WalkResult::interrupt();
  });
  const std::string mnemonic = op->getName().stripDialect().str();
  if (name.empty())
    return mnemonic + "." + std::to_string(id);
  return isa<HadamardOp, QuantizeOp>(op) ? name + "." + mnemonic : name;
}

namespace {
//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Lowers the ops of one planned function to calls in another one.
class ForwardLowering : CallFacts {
public:
  /// All programs of the module share `functions` and `caches`.
  ForwardLowering(ModuleOp module, func::FuncOp planned, Instances &functions,
                  const CacheList &caches)
      : module(module), planned(planned),
        builder(planned.getLoc(), planned->getContext()), functions(functions),
        caches(caches) {}

  LogicalResult run();

private:
  LogicalResult check();
  LogicalResult checkTokenArguments();
  /// What the manifest says of an op's work; numbers that are 0 are left out.
  DictionaryAttr describe(const OpWork &work);
  /// What the manifest says of an argument or a result.
  DictionaryAttr describe(const ProgramValue &value);
  ProgramValue valueAt(Value value, BufferAttr place, StringAttr name);
  ArrayAttr inputs();
  ArrayAttr outputs();
  static LogicalResult checkView(ViewOp view);
  LogicalResult checkPlaces(ForwardOp op);
  LogicalResult checkHead(ForwardOp op);
  LogicalResult lower(ForwardOp op);

  Value i32(int64_t value) {
    return arith::ConstantIntOp::create(builder, value, 32);
  }
  func::CallOp call(const std::string &function, ArrayRef<Value> arguments = {},
                    TypeRange results = {});
  /// Calls the instance of a driver function with its arguments.
  void call(const DriverCall &driver) {
    Value arguments =
        StructOp::create(builder, context.getType(), driver.arguments);
    call(functions.instance(driver), arguments);
  }

  WeightPlace partAt(FlatSymbolRefAttr part) const override {
    PackedOp packed = partOf(part);
    return {ImageId(indexOf(module, packed.getImageAttr())),
            WeightOffset(static_cast<int64_t>(packed.getOffset()))};
  }
  Bytes strideOf(FlatSymbolRefAttr part) const override {
    return Bytes(static_cast<int64_t>(partOf(part).getStride().value_or(0)));
  }
  CachePlace cacheOf(ForwardOp op) const override { return caches.placeOf(op); }
  ProductPlan productOf(const KernelInfo &gemv,
                        const KernelInfo &gemm) const override {
    return productPlan(gemv, gemm);
  }
  Tokens blockTokens(const KernelInfo &scores,
                     int64_t groupQueries) const override {
    return Tokens(attentionTokens(scores, groupQueries));
  }

  PackedOp partOf(FlatSymbolRefAttr name) const {
    return parts.lookup(name.getValue());
  }

  /// Says that the thread begins `op`.
  void trace(ForwardOp op) {
    call(functions.trace(), i32(op.getPlanAttr().getId()));
  }

  ModuleOp module;
  func::FuncOp planned;
  ImplicitLocOpBuilder builder;
  Instances &functions;
  const CacheList &caches;
  /// Parts of the images by their names.
  llvm::StringMap<PackedOp> parts;
  Value context, thread;
  SmallVector<Attribute> opNames, opWork, opKernels;
};

struct Lower final : qwen::impl::LowerBase<Lower> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    // The place of a layer in a page depends on the caches of all programs.
    CacheList caches;
    const SmallVector<func::FuncOp> programs = programsOf(module);
    for (func::FuncOp program : programs)
      for (ForwardOp op : program.getOps<ForwardOp>())
        if (failed(caches.add(op)))
          return signalPassFailure();
    Instances functions(module);
    for (func::FuncOp program : programs)
      if (failed(ForwardLowering(module, program, functions, caches).run()))
        return signalPassFailure();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// Checks that arguments of integers are what the driver reads: a call has one
/// array of each name.
LogicalResult ForwardLowering::checkTokenArguments() {
  llvm::StringMap<unsigned> numbers;
  for (BlockArgument argument : planned.getArguments()) {
    if (!isTokenIntegers(argument.getType()))
      continue;
    const unsigned number = argument.getArgNumber();
    for (OpOperand &use : argument.getUses()) {
      const StringRef name = tokenArgumentName(use),
                      first = tokenArgumentName(*argument.use_begin());
      if (name != first)
        return planned.emitError()
               << "argument " << number << " of program @"
               << planned.getSymName() << " is read as " << first << " and as "
               << name << " of the tokens";
      const unsigned other = numbers.try_emplace(name, number).first->second;
      if (other != number)
        return planned.emitError()
               << "arguments " << other << " and " << number << " of program @"
               << planned.getSymName() << " are read as " << name
               << " of the tokens when a call has one array of them";
    }
  }
  return success();
}

LogicalResult ForwardLowering::check() {
  for (BlockArgument argument : planned.getArguments()) {
    const unsigned number = argument.getArgNumber();
    if (!isTokenIntegers(argument.getType()) &&
        (!bufferOf(argument) || !planned.getArgAttr(number, kNameAttr)))
      return planned.emitError()
             << "argument " << number << " of program @" << planned.getSymName()
             << " has no name and place; run qwen-plan first";
  }
  for (Operation &op : planned.front().without_terminator()) {
    if (auto view = dyn_cast<ViewOp>(op)) {
      if (failed(checkView(view)))
        return failure();
      continue;
    }
    auto forward = dyn_cast<ForwardOp>(op);
    if (!forward)
      return op.emitOpError() << "cannot be lowered to calls";
    if (!forward.getPlanAttr())
      return op.emitOpError() << "has no plan; run qwen-plan first";
    if (!forward.getKernelsAttr())
      return op.emitOpError()
             << "has no kernels; run qwen-select-kernels first";
    if (!forward.getPackedAttr() && !forward.getWeightUses().empty())
      return op.emitOpError() << "has no packed weights; run qwen-pack first";
    if (lacksFormat(forward))
      return op.emitOpError() << "has no format of keys and values; run "
                                 "qwen-quantize first";
    if (!indexOf(planned, runsOn(forward)))
      return op.emitOpError() << "runs on " << nameOf(runsOn(forward))
                              << ", which has no limit in " << kLimitsAttr;
    if (failed(checkPlaces(forward)) || failed(checkHead(forward)))
      return failure();
  }
  return success();
}

/// Checks that a norm leaves the hidden values, and that the logits are those
/// of the wanted tokens, for which the result of the call has room.
LogicalResult ForwardLowering::checkHead(ForwardOp op) {
  if (!isForLogits(op))
    return success();
  Operation *writer = op->getOperand(0).getDefiningOp();
  if (!isa_and_nonnull<RmsNormOp>(writer) &&
      !(isa_and_nonnull<TurnOp>(writer) && isa<LmHeadOp>(op.getOperation())))
    return op->emitOpError() << "needs the activations of a norm";
  if (nameOf(runsOn(op)) != kWantedName)
    return op->emitOpError() << "gives logits of " << nameOf(runsOn(op))
                             << " when those of wanted are needed";
  return success();
}

/// Checks that nothing lies between tokens that are joined.
LogicalResult ForwardLowering::checkView(ViewOp view) {
  const Value input = view->getOperand(0);
  const BufferAttr buffer = bufferOf(input);
  if (!buffer)
    return view->emitOpError()
           << "reads activations that have no place in the arena";
  if (view.getJoinedTokens() == 1 || buffer.getStride() == widthOf(input))
    return success();
  return view->emitOpError()
         << "joins activations with a stride of " << buffer.getStride()
         << " when " << widthOf(input) << " is needed";
}

/// Checks that operands and results lie as the functions expect.
LogicalResult ForwardLowering::checkPlaces(ForwardOp op) {
  for (Value operand : op->getOperands()) {
    if (!isTokenIntegers(operand.getType()) && !bufferOf(operand))
      return op->emitOpError()
             << "reads activations that have no place in the arena";
  }
  if (op.getWorkUnit() == WorkUnit::Panel) {
    const Value input = op->getOperand(0);
    if (bufferOf(input).getStride() != widthOf(input))
      return op->emitOpError() << "reads activations with a stride of "
                               << bufferOf(input).getStride()
                               << " when products need " << widthOf(input);
  }
  if (op.getResultPlace() != ResultPlace::OneBuffer)
    return success();
  const BufferAttr first = bufferOf(op->getResult(0));
  int64_t width = 0;
  for (Value result : op->getResults()) {
    const BufferAttr buffer = bufferOf(result);
    if (buffer.getOffset() != first.getOffset() + width * 4 ||
        buffer.getStride() != first.getStride())
      return op->emitOpError() << "has results that do not lie side by side";
    width += widthOf(result);
  }
  OpOperand *residual = op.getInPlaceOperand();
  if (!residual || bufferOf(residual->get()).getStride() == first.getStride())
    return success();
  return op->emitOpError() << "has a residual with a stride of "
                           << bufferOf(residual->get()).getStride() << " when "
                           << first.getStride() << " is needed";
}

LogicalResult ForwardLowering::run() {
  if (failed(check()) || failed(checkTokenArguments()))
    return failure();
  for (auto packed : module.getOps<PackedOp>())
    parts[packed.getSymName()] = packed;

  const Type pointer = LLVM::LLVMPointerType::get(module.getContext());
  const Type i32Type = builder.getI32Type();
  builder.setInsertionPoint(planned);
  auto forward = func::FuncOp::create(
      builder, planned.getSymName(),
      builder.getFunctionType({pointer, i32Type, i32Type}, {}));
  forward->setDiscardableAttrs(planned->getDiscardableAttrDictionary());
  Block *entry = forward.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  context = entry->getArgument(0);
  thread = entry->getArgument(1);
  for (ForwardOp op : planned.front().getOps<ForwardOp>())
    if (failed(lower(op)))
      return failure();
  builder.setLoc(planned.getLoc());
  call(functions.trace(), i32(static_cast<int64_t>(opNames.size())));
  func::ReturnOp::create(builder);

  SmallVector<Attribute> counts = {
      builder.getStringAttr(nameOf(tokensOfCall(planned)))};
  llvm::append_range(counts, ownCounts(planned));
  forward->setAttr(kCountsAttr, builder.getArrayAttr(counts));
  forward->setAttr(kInputsAttr, inputs());
  forward->setAttr(kOutputsAttr, outputs());
  CacheList used;
  for (ForwardOp op : planned.front().getOps<ForwardOp>())
    if (failed(used.add(op)))
      return failure();
  planned.erase();
  forward->setAttr(kOpsAttr, builder.getArrayAttr(opNames));
  forward->setAttr(kCachesAttr, used.toAttribute(module.getContext()));
  forward->setAttr(kWorkAttr, builder.getArrayAttr(opWork));
  forward->setAttr(kOpKernelsAttr, builder.getArrayAttr(opKernels));
  return success();
}

/// The activations that lie at `place`, or the logits if it is not in the
/// arena.
ProgramValue ForwardLowering::valueAt(Value value, BufferAttr place,
                                      StringAttr name) {
  ProgramValue of = {name ? name.str() : std::string(kLogitsName),
                     widthOf(value), place.getStride(), place.getOffset()};
  if (name)
    of.count = *indexOf(planned, countOf(value));
  return of;
}

ArrayAttr ForwardLowering::inputs() {
  SmallVector<Attribute> values;
  for (BlockArgument argument : planned.getArguments()) {
    const unsigned number = argument.getArgNumber();
    ProgramValue value;
    if (!isTokenIntegers(argument.getType()))
      value = valueAt(argument, bufferOf(argument),
                      planned.getArgAttrOfType<StringAttr>(number, kNameAttr));
    else
      value.name = argument.use_empty()
                       ? kIdsName
                       : tokenArgumentName(*argument.use_begin());
    if (auto from =
            planned.getArgAttrOfType<FlatSymbolRefAttr>(number, kFromAttr))
      value.from = from.getValue();
    values.push_back(describe(value));
  }
  return builder.getArrayAttr(values);
}

ArrayAttr ForwardLowering::outputs() {
  SmallVector<Attribute> values;
  for (OpOperand &result : planned.front().getTerminator()->getOpOperands()) {
    const auto name = planned.getResultAttrOfType<StringAttr>(
        result.getOperandNumber(), kNameAttr);
    if (name || result.get().getDefiningOp<LmHeadOp>())
      values.push_back(
          describe(valueAt(result.get(), bufferOf(result.get()), name)));
  }
  return builder.getArrayAttr(values);
}

/// The facts of `from` in the manifest: those that are not 0.
template <typename Struct>
static SmallVector<NamedAttribute>
factsOf(const Struct &from, ArrayRef<Fact<Struct>> facts, Builder &builder) {
  SmallVector<NamedAttribute> fields;
  for (const Fact<Struct> &fact : facts)
    fact.visitIn(from, [&](auto value) {
      if (value)
        fields.push_back(
            builder.getNamedAttr(fact.key, attributeOf(builder, value)));
    });
  return fields;
}

DictionaryAttr ForwardLowering::describe(const ProgramValue &value) {
  SmallVector<NamedAttribute> fields =
      factsOf<ProgramValue>(value, kValueFacts, builder);
  llvm::append_range(fields, factsOf<ProgramValue>(value, kCountFact, builder));
  fields.push_back(
      builder.getNamedAttr("name", builder.getStringAttr(value.name)));
  if (value.offset >= 0)
    fields.push_back(builder.getNamedAttr(
        "offset", builder.getI64IntegerAttr(value.offset)));
  if (!value.from.empty())
    fields.push_back(
        builder.getNamedAttr("from", builder.getStringAttr(value.from)));
  return builder.getDictionaryAttr(fields);
}

DictionaryAttr ForwardLowering::describe(const OpWork &work) {
  SmallVector<NamedAttribute> fields =
      factsOf<OpWork>(work, kWorkFacts, builder);
  fields.push_back(builder.getNamedAttr(
      "kind", builder.getStringAttr(StringRef(opKindName(work.kind)))));
  SmallVector<Attribute> calls;
  for (const KernelCalls &each : work.calls)
    calls.push_back(builder.getDictionaryAttr(
        factsOf<KernelCalls>(each, kCallFacts, builder)));
  if (!calls.empty())
    fields.push_back(
        builder.getNamedAttr("calls", builder.getArrayAttr(calls)));
  return builder.getDictionaryAttr(fields);
}

LogicalResult ForwardLowering::lower(ForwardOp op) {
  builder.setLoc(op->getLoc());
  const PlanAttr plan = op.getPlanAttr();
  if (plan.getId() != static_cast<int64_t>(opNames.size()))
    return op->emitOpError() << "has plan id " << plan.getId() << " when "
                             << opNames.size() << " is next";
  opNames.push_back(builder.getStringAttr(opName(op, plan.getId())));
  opWork.push_back(describe(workOf(op, module)));
  opKernels.push_back(op.getKernelsAttr());
  if (plan.getBarrier())
    call(functions.barrier());
  trace(op);
  // The norm before the head also gives the hidden values.
  auto norm = dyn_cast<RmsNormOp>(op.getOperation());
  if (norm && norm.getLmHead())
    call(norm.getHiddenCall(*this));
  call(op.getDriverCall(*this));
  return success();
}

func::CallOp ForwardLowering::call(const std::string &function,
                                   ArrayRef<Value> arguments,
                                   TypeRange results) {
  SmallVector<Value> all = {context, thread};
  all.append(arguments.begin(), arguments.end());
  return func::CallOp::create(builder, function, results, all);
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

std::vector<std::string> qwen::calledKernels(ModuleOp module) {
  std::vector<std::string> names;
  for (const KernelInfo &kernel : kernelTable())
    if (auto function =
            module.lookupSymbol<func::FuncOp>(StringRef(kernel.name)))
      if (function.isDeclaration())
        names.emplace_back(kernel.name);
  return names;
}
