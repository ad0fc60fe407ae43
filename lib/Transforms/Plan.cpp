//===- Plan.cpp - Order, barriers and buffers -----------------------------===//
//
// Barriers first, which cut the ops into phases, then buffers, whose lifetimes
// are counted in phases. Passes.td has the rules.
//
//===----------------------------------------------------------------------===//

#include "PlanInput.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PLAN
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// Memory for an argument or for the results of one op, and of products that
/// write over them.
struct Buffer {
  int64_t bytes;
  /// The phases in which it is alive, both included.
  unsigned firstPhase, lastPhase;
  int64_t offset = 0;
  /// Whether another program has chosen the offset.
  bool isFixed = false;
};

/// An argument of activations, and the number of its buffer.
struct Argument {
  BlockArgument value;
  unsigned buffer;
  int64_t stride;
};

class Planner {
public:
  explicit Planner(func::FuncOp program)
      : program(program), ops(program.getOps<ForwardOp>()) {}

  LogicalResult run() {
    for (ForwardOp op : ops)
      if (failed(checkOperands(op)))
        return failure();
    placeBarriers();
    if (failed(layOutArguments()) || failed(checkResults()))
      return failure();
    for (ForwardOp op : ops)
      layOut(op);
    placeBuffers();
    for (const Argument &argument : arguments)
      program.setArgAttr(argument.value.getArgNumber(), kPlaceAttr,
                         BufferAttr::get(program.getContext(),
                                         buffers[argument.buffer].offset,
                                         argument.stride, -1, -1));
    for (auto [id, op] : llvm::enumerate(ops))
      op.setPlanAttr(PlanAttr::get(op->getContext(), id, barriers[id],
                                   absolutePlaces(op)));
    return success();
  }

  int64_t arenaBytes() const { return bytes; }

private:
  LogicalResult checkOperands(ForwardOp op) const;
  LogicalResult checkResults();
  void placeBarriers();
  LogicalResult layOutArguments();
  void layOut(ForwardOp op);
  int64_t layOutInOneBuffer(ForwardOp op);
  int64_t layOutApart(ForwardOp op);
  void placeBuffers();
  SmallVector<BufferAttr> absolutePlaces(Operation *op) const;

  bool readsOtherUnits(ForwardOp op, Value operand, ForwardOp writer) const;
  unsigned lastReader(ValueRange values, unsigned first) const;
  unsigned lastPhase() const {
    return ops.empty() ? 0 : phases.lookup(ops.back());
  }
  int64_t strideOf(Value value) const;
  bool writesInPlace(ForwardOp op) const;

  func::FuncOp program;
  SmallVector<ForwardOp> ops;
  SmallVector<Argument> arguments;

  SmallVector<bool> barriers;
  llvm::DenseMap<Operation *, unsigned> phases;

  SmallVector<Buffer> buffers;
  llvm::DenseMap<Operation *, unsigned> bufferOf;
  /// Places of the results within the buffer.
  llvm::DenseMap<Operation *, SmallVector<BufferAttr>> places;
  int64_t bytes = 0;
};
} // namespace

/// Activations that an op reads must lie in the arena.
LogicalResult Planner::checkOperands(ForwardOp op) const {
  for (Value operand : op->getOperands()) {
    if (isTokenIntegers(operand.getType()))
      continue;
    Operation *writer = writerOf(operand);
    if (writer && !isa<ForwardOp>(writer))
      return op->emitOpError()
             << "reads the result of '" << writer->getName()
             << "', which is not planned; run the fusion passes first";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Whether a thread may read values of `operand` that another one has written,
/// if `writer` and `op` run in the same phase.
bool Planner::readsOtherUnits(ForwardOp op, Value operand,
                              ForwardOp writer) const {
  // A view has other tokens than its writer.
  return operand.getDefiningOp() != writer ||
         op.getWorkUnit() != WorkUnit::Token ||
         writer.getWorkUnit() != WorkUnit::Token;
}

void Planner::placeBarriers() {
  unsigned phase = 0;
  SmallVector<CacheUse> cacheUses;
  for (ForwardOp op : ops) {
    bool barrier = llvm::any_of(op->getOperands(), [&](Value operand) {
      auto writer = dyn_cast_or_null<ForwardOp>(writerOf(operand));
      return writer && phases.lookup_or(writer, ~0u) == phase &&
             readsOtherUnits(op, operand, writer);
    });
    const std::optional<CacheUse> use = op.getCacheUse();
    if (use)
      barrier |= llvm::any_of(cacheUses, [&](const CacheUse &other) {
        return other.layer == use->layer && other.name == use->name &&
               (other.writes || use->writes);
      });
    if (barrier) {
      ++phase;
      cacheUses.clear();
    }
    if (use)
      cacheUses.push_back(*use);
    barriers.push_back(barrier);
    phases[op] = phase;
  }
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// Gives each argument of activations a buffer: where another program leaves
/// it, for all the program, or one that the caller fills.
LogicalResult Planner::layOutArguments() {
  for (BlockArgument argument : activationArguments(program)) {
    const unsigned number = argument.getArgNumber();
    if (!isFloatActivations(argument.getType()) ||
        !program.getArgAttrOfType<StringAttr>(number, kNameAttr))
      return program.emitError()
             << "argument " << number << " of program @" << program.getSymName()
             << " is no activations in f32 with a " << kNameAttr;
    const FailureOr<BufferAttr> place = placeInOther(argument);
    if (failed(place))
      return failure();
    const int64_t stride =
        *place ? place->getStride() : alignTo(widthOf(argument), kPanelOutputs);
    arguments.push_back(
        {argument, static_cast<unsigned>(buffers.size()), stride});
    buffers.push_back({alignTo(mostTokens(argument) * stride * 4, kTensorAlign),
                       0, *place ? lastPhase() : lastReader(argument, 0),
                       *place ? place->getOffset() : 0,
                       static_cast<bool>(*place)});
  }
  return success();
}

/// Whether activations of that type may be read by their name: of 32 bits, in
/// order.
static bool canBeNamed(Type type) {
  return isFloatActivations(type) || isChoiceIntegers(type) ||
         (isExpertActivations(type) && !isInBlocks(type));
}

/// Results with a name must stay in the arena.
LogicalResult Planner::checkResults() {
  for (OpOperand &result : program.front().getTerminator()->getOpOperands()) {
    const unsigned number = result.getOperandNumber();
    if (!program.getResultAttr(number, kNameAttr))
      continue;
    auto writer = result.get().getDefiningOp<ForwardOp>();
    if (!writer || !canBeNamed(result.get().getType()) ||
        writer.getResultPlace() == ResultPlace::CallResult)
      return program.emitError()
             << "result " << number << " of program @" << program.getSymName()
             << " has a name when only activations in f32 and choices that an "
                "op computes can have one";
  }
  return success();
}

/// The last of the phases from `first` on in which one of `values` is read.
unsigned Planner::lastReader(ValueRange values, unsigned first) const {
  unsigned last = first;
  SmallVector<Operation *> readers;
  for (Value value : values)
    llvm::append_range(readers, value.getUsers());
  while (!readers.empty()) {
    Operation *reader = readers.pop_back_val();
    if (isa<ViewOp>(reader))
      llvm::append_range(readers, reader->getUsers());
    else if (auto found = phases.find(reader); found != phases.end())
      last = std::max(last, found->second);
    else // Returned: alive to the end.
      last = lastPhase();
  }
  return last;
}

/// Whether `op` may write over its in-place operand: no other use is in the
/// phase of `op` or later, and whole panels of it can be written.
bool Planner::writesInPlace(ForwardOp op) const {
  OpOperand *inPlace = op.getInPlaceOperand();
  if (!inPlace)
    return false;
  Operation *writer = inPlace->get().getDefiningOp();
  // An argument keeps its values. The padding of one of several results is the
  // next result.
  if (!writer || isa<ViewOp>(writer) || writer->getNumResults() != 1)
    return false;
  SmallVector<OpOperand *> uses(
      llvm::make_pointer_range(inPlace->get().getUses()));
  while (!uses.empty()) {
    OpOperand *use = uses.pop_back_val();
    Operation *reader = use->getOwner();
    if (isa<ViewOp>(reader)) {
      llvm::append_range(uses, llvm::make_pointer_range(reader->getUses()));
      continue;
    }
    auto found = phases.find(reader);
    if (found == phases.end() ||
        (use != inPlace && found->second >= phases.lookup(op)))
      return false;
  }
  return true;
}

/// Places the results of `op` within a buffer of its own, or over its in-place
/// operand.
void Planner::layOut(ForwardOp op) {
  const ResultPlace place = op.getResultPlace();
  if (place == ResultPlace::CallResult) {
    places[op] = {BufferAttr::get(
        op->getContext(), -1, alignTo(widthOf(op->getResult(0)), kPanelOutputs),
        -1, -1)};
    return;
  }
  if (op->getNumResults() == 0)
    return;
  if (writesInPlace(op)) {
    Operation *writer = op.getInPlaceOperand()->get().getDefiningOp();
    const unsigned buffer = bufferOf.lookup(writer);
    bufferOf[op] = buffer;
    places[op] = SmallVector<BufferAttr>(places[writer]);
    buffers[buffer].lastPhase =
        std::max(buffers[buffer].lastPhase,
                 lastReader(op->getResults(), phases.lookup(op)));
    return;
  }
  const int64_t size =
      place == ResultPlace::OneBuffer ? layOutInOneBuffer(op) : layOutApart(op);
  bufferOf[op] = buffers.size();
  const unsigned phase = phases.lookup(op);
  buffers.push_back({size, phases.lookup(firstWriter(op)),
                     lastReader(op->getResults(), phase)});
}

/// Floats from a token of `value`, which has a place, to the next.
int64_t Planner::strideOf(Value value) const {
  if (auto view = value.getDefiningOp<ViewOp>())
    return strideOf(view->getOperand(0)) * view.getJoinedTokens();
  if (auto result = dyn_cast<OpResult>(value))
    return places.lookup(result.getOwner())[result.getResultNumber()]
        .getStride();
  return llvm::find_if(
             arguments,
             [&](const Argument &argument) { return argument.value == value; })
      ->stride;
}

/// Places the results side by side for each token; returns the size in bytes.
int64_t Planner::layOutInOneBuffer(ForwardOp op) {
  int64_t width = 0;
  for (Value value : op->getResults())
    width += widthOf(value);
  int64_t stride = alignTo(width, kPanelOutputs);
  // Kernels step through result and residual with one stride.
  if (OpOperand *inPlace = op.getInPlaceOperand())
    stride = strideOf(inPlace->get());
  int64_t first = 0;
  for (Value value : op->getResults()) {
    places[op].push_back(
        BufferAttr::get(op->getContext(), first * 4, stride, -1, -1));
    first += widthOf(value);
  }
  return alignTo(mostTokens(op->getResult(0)) * stride * 4, kTensorAlign);
}

/// Places each result, and the scales and sums of a quantized one, behind the
/// one before; returns the size in bytes.
int64_t Planner::layOutApart(ForwardOp op) {
  int64_t size = 0;
  auto reserve = [&](int64_t count) {
    const int64_t offset = size;
    size = alignTo(size + count, kTensorAlign);
    return offset;
  };
  for (Value value : op->getResults()) {
    const int64_t tokens = mostTokens(value);
    int64_t stride = widthOf(value), offset, scales = -1, sums = -1;
    if (isInBlocks(value.getType())) {
      // Some targets need whole tiles, and all targets share the plan.
      offset = reserve(roomForCodes(tokens, stride));
      scales = reserve(roomForScales(tokens, stride) * 4);
      sums = reserve(tokens * (stride / kGroup) * 4);
    } else {
      stride = alignTo(stride, kPanelOutputs);
      offset = reserve(tokens * stride * 4);
    }
    places[op].push_back(
        BufferAttr::get(op->getContext(), offset, stride, scales, sums));
  }
  return size;
}

/// Gives each buffer the lowest place that no buffer alive with it has.
void Planner::placeBuffers() {
  // Sorted by offset.
  SmallVector<const Buffer *> placed;
  const auto place = [&](Buffer &buffer, int64_t offset) {
    buffer.offset = offset;
    bytes = std::max(bytes, offset + buffer.bytes);
    placed.insert(llvm::upper_bound(placed, &buffer,
                                    [](const Buffer *a, const Buffer *b) {
                                      return a->offset < b->offset;
                                    }),
                  &buffer);
  };
  for (Buffer &buffer : buffers)
    if (buffer.isFixed)
      place(buffer, buffer.offset);
  for (Buffer &buffer : buffers) {
    if (buffer.isFixed)
      continue;
    int64_t offset = 0;
    for (const Buffer *other : placed) {
      if (other->lastPhase < buffer.firstPhase ||
          buffer.lastPhase < other->firstPhase)
        continue;
      if (offset + buffer.bytes <= other->offset)
        break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    place(buffer, offset);
  }
}

SmallVector<BufferAttr> Planner::absolutePlaces(Operation *op) const {
  SmallVector<BufferAttr> result = places.lookup(op);
  auto found = bufferOf.find(op);
  if (found == bufferOf.end())
    return result;
  const int64_t base = buffers[found->second].offset;
  auto absolute = [&](int64_t offset) {
    return offset < 0 ? offset : base + offset;
  };
  for (BufferAttr &place : result)
    place = BufferAttr::get(op->getContext(), absolute(place.getOffset()),
                            place.getStride(), absolute(place.getScales()),
                            absolute(place.getSums()));
  return result;
}

namespace {
struct Plan final : qwen::impl::PlanBase<Plan> {
  void runOnOperation() override {
    for (func::FuncOp program : programsOf(getOperation())) {
      Planner planner(program);
      if (failed(checkLimits(program)) || failed(planner.run()))
        return signalPassFailure();
      program->setAttr(kArenaBytesAttr, Builder(program).getI64IntegerAttr(
                                            planner.arenaBytes()));
    }
  }
};
} // namespace
