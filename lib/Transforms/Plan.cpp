//===- Plan.cpp - Order, barriers and buffers -----------------------------===//
//
// Barriers first, which cut the ops into phases, then buffers, whose lifetimes
// are counted in phases. Passes.td has the rules.
//
//===----------------------------------------------------------------------===//

#include "PlanInput.h"

#include "qwen/ABI/Artifact.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PLAN
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// Memory for the results of one op, and of products that write over them.
struct Buffer {
  int64_t bytes;
  /// The phases in which it is alive, both included.
  unsigned firstPhase, lastPhase;
  int64_t offset = 0;
};

class Planner {
public:
  explicit Planner(PlanInput input)
      : maxTokens(input.maxTokens), maxRows(input.maxRows) {
    for (Operation &op : input.forward.front()) {
      if (isPlanned(&op))
        ops.push_back(&op);
      if (isa<WantedRowsOp>(op) || llvm::any_of(op.getOperands(), [&](Value v) {
            return pastWantedRows.contains(v.getDefiningOp());
          }))
        pastWantedRows.insert(&op);
    }
  }

  LogicalResult run() {
    for (Operation *op : ops)
      if (failed(checkOperands(op)))
        return failure();
    placeBarriers();
    for (Operation *op : ops)
      layOut(op);
    placeBuffers();
    for (auto [id, op] : llvm::enumerate(ops))
      op->setAttr(kPlanName, PlanAttr::get(op->getContext(), id, barriers[id],
                                           absolutePlaces(op)));
    return success();
  }

  int64_t arenaBytes() const { return bytes; }

private:
  LogicalResult checkOperands(Operation *op) const;
  void placeBarriers();
  void layOut(Operation *op);
  void placeBuffers();
  SmallVector<BufferAttr> absolutePlaces(Operation *op) const;

  bool readsOtherUnits(Operation *op, Value operand, Operation *writer) const;
  unsigned lastReader(Operation *op) const;
  bool writesOverResidual(LinearOp op) const;

  const int64_t maxTokens, maxRows;
  SmallVector<Operation *> ops;
  /// The ops that work on wanted rows, not on tokens.
  llvm::DenseSet<Operation *> pastWantedRows;

  SmallVector<bool> barriers;
  llvm::DenseMap<Operation *, unsigned> phases;

  SmallVector<Buffer> buffers;
  llvm::DenseMap<Operation *, unsigned> bufferOf;
  /// Places of the results within the buffer.
  llvm::DenseMap<Operation *, SmallVector<BufferAttr>> places;
  int64_t bytes = 0;
};
} // namespace

/// Rows that an op reads must lie in the arena.
LogicalResult Planner::checkOperands(Operation *op) const {
  for (Value operand : op->getOperands()) {
    if (cast<RankedTensorType>(operand.getType()).getRank() != 2)
      continue;
    Operation *writer = writerOf(operand);
    if (!writer)
      return op->emitOpError() << "reads rows that are an argument of the "
                                  "function and have no place in the arena";
    if (!isPlanned(writer))
      return op->emitOpError()
             << "reads the result of '" << writer->getName()
             << "', which is not planned; run the fusion passes first";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Whether a thread may read of `operand` what another one has written, if
/// `writer` and `op` run in the same phase.
bool Planner::readsOtherUnits(Operation *op, Value operand,
                              Operation *writer) const {
  // A view's rows are other rows of what the writer has written.
  return operand.getDefiningOp() != writer || !isDividedByTokens(op) ||
         !isDividedByTokens(writer);
}

void Planner::placeBarriers() {
  unsigned phase = 0;
  llvm::DenseSet<int64_t> appended, attended;
  for (Operation *op : ops) {
    bool barrier = llvm::any_of(op->getOperands(), [&](Value operand) {
      Operation *writer = writerOf(operand);
      return writer && phases.lookup_or(writer, ~0u) == phase &&
             readsOtherUnits(op, operand, writer);
    });
    auto append = dyn_cast<AppendOp>(op);
    auto attention = dyn_cast<AttentionOp>(op);
    if (append)
      barrier |= attended.contains(append.getLayer());
    if (attention)
      barrier |= appended.contains(attention.getLayer());

    if (barrier) {
      ++phase;
      appended.clear();
      attended.clear();
    }
    if (append)
      appended.insert(append.getLayer());
    if (attention)
      attended.insert(attention.getLayer());
    barriers.push_back(barrier);
    phases[op] = phase;
  }
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// The last phase in which a result of `op` is read, or written.
unsigned Planner::lastReader(Operation *op) const {
  unsigned last = phases.lookup(op);
  SmallVector<Operation *> readers(op->user_begin(), op->user_end());
  while (!readers.empty()) {
    Operation *reader = readers.pop_back_val();
    if (isa<WantedRowsOp>(reader))
      llvm::append_range(readers, reader->getUsers());
    else if (auto found = phases.find(reader); found != phases.end())
      last = std::max(last, found->second);
    else // Returned: alive to the end.
      last = phases.lookup(ops.back());
  }
  return last;
}

/// Whether `op` may write where its residual is: nobody reads that in the phase
/// of `op` or later, and whole panels of it can be written.
bool Planner::writesOverResidual(LinearOp op) const {
  Value residual = op.getResidual();
  if (!residual)
    return false;
  Operation *writer = residual.getDefiningOp();
  // Columns behind those of one of several results belong to the next result.
  if (isa<WantedRowsOp>(writer) || writer->getNumResults() != 1)
    return false;
  SmallVector<OpOperand *> uses(llvm::make_pointer_range(residual.getUses()));
  while (!uses.empty()) {
    OpOperand *use = uses.pop_back_val();
    Operation *reader = use->getOwner();
    if (isa<WantedRowsOp>(reader)) {
      for (OpOperand &viewUse : reader->getUses())
        uses.push_back(&viewUse);
      continue;
    }
    auto found = phases.find(reader);
    if (found == phases.end())
      return false;
    const bool isResidual = use == &*op.getResidualMutable().begin();
    if (!isResidual && found->second >= phases.lookup(op))
      return false;
  }
  return true;
}

/// Places the results of `op` within a buffer of its own, or over its residual.
void Planner::layOut(Operation *op) {
  MLIRContext *context = op->getContext();
  SmallVector<BufferAttr> &result = places[op];
  if (auto head = dyn_cast<LmHeadOp>(op)) {
    result.push_back(BufferAttr::get(
        context, -1, alignTo(widthOf(head.getResult()), kPanelOutputs), -1,
        -1));
    return;
  }
  if (op->getNumResults() == 0)
    return;

  auto linear = dyn_cast<LinearOp>(op);
  if (linear && writesOverResidual(linear)) {
    Operation *writer = linear.getResidual().getDefiningOp();
    const unsigned buffer = bufferOf.lookup(writer);
    bufferOf[op] = buffer;
    result = SmallVector<BufferAttr>(places[writer]);
    buffers[buffer].lastPhase =
        std::max(buffers[buffer].lastPhase, lastReader(op));
    return;
  }

  const int64_t rows = pastWantedRows.contains(op) ? maxRows : maxTokens;
  const int64_t align = kTensorAlign;
  int64_t size = 0;
  auto reserve = [&](int64_t count) {
    const int64_t offset = size;
    size = alignTo(size + count, align);
    return offset;
  };
  if (linear) {
    int64_t columns = 0;
    for (Value value : linear.getResults())
      columns += widthOf(value);
    int64_t stride = alignTo(columns, kPanelOutputs);
    // Kernels step through result and residual with one stride.
    if (Value residual = linear.getResidual()) {
      Operation *writer = writerOf(residual);
      while (auto view = residual.getDefiningOp<WantedRowsOp>())
        residual = view.getInput();
      stride = places[writer][cast<OpResult>(residual).getResultNumber()]
                   .getStride();
    }
    int64_t column = 0;
    for (Value value : linear.getResults()) {
      result.push_back(BufferAttr::get(context, column * 4, stride, -1, -1));
      column += widthOf(value);
    }
    reserve(rows * stride * 4);
  } else {
    for (Value value : op->getResults()) {
      const int64_t columns = widthOf(value);
      if (getElementTypeOrSelf(value.getType()).isInteger(8)) {
        const int64_t values = reserve(rows * columns);
        const int64_t scales =
            reserve(rows * ceilDiv(columns, kActivationBlock) * 4);
        const int64_t sums = reserve(rows * (columns / kGroup) * 4);
        result.push_back(
            BufferAttr::get(context, values, columns, scales, sums));
      } else {
        const int64_t stride = alignTo(columns, kPanelOutputs);
        result.push_back(BufferAttr::get(context, reserve(rows * stride * 4),
                                         stride, -1, -1));
      }
    }
  }
  bufferOf[op] = buffers.size();
  buffers.push_back({size, phases.lookup(op), lastReader(op)});
}

/// Gives each buffer the lowest place that no buffer alive with it has.
void Planner::placeBuffers() {
  SmallVector<const Buffer *> placed;
  for (Buffer &buffer : buffers) {
    int64_t offset = 0;
    // `placed` is sorted by offset.
    for (const Buffer *other : placed) {
      if (other->lastPhase < buffer.firstPhase ||
          buffer.lastPhase < other->firstPhase)
        continue;
      if (offset + buffer.bytes <= other->offset)
        break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    buffer.offset = offset;
    bytes = std::max(bytes, offset + buffer.bytes);
    placed.insert(llvm::upper_bound(placed, &buffer,
                                    [](const Buffer *a, const Buffer *b) {
                                      return a->offset < b->offset;
                                    }),
                  &buffer);
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
    ModuleOp module = getOperation();
    const FailureOr<PlanInput> input = readPlanInput(module);
    if (failed(input))
      return signalPassFailure();
    Planner planner(*input);
    if (failed(planner.run()))
      return signalPassFailure();
    module->setAttr(kArenaBytesAttr,
                    Builder(module).getI64IntegerAttr(planner.arenaBytes()));
  }
};
} // namespace
