//===- VerifyPlan.cpp - Whether a plan is safe to run ---------------------===//
//
// One walk over the ops in order counts phases, checks barriers, and collects
// regions of the arena with their lifetimes. A sweep over the phases then finds
// regions that overlap while both are alive. Passes.td has the rules. Nothing
// here calls the planner's code, so that it cannot repeat the planner's
// mistakes.
//
//===----------------------------------------------------------------------===//

#include "PlanInput.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_VERIFYPLAN
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The phase of the function's return, which reads values after all ops.
static constexpr unsigned kAfterAll = ~0u;

/// Whether the same thread has the same tokens of both ops.
static bool haveSameUnits(ForwardOp a, ForwardOp b) {
  return a.getWorkUnit() == WorkUnit::Token &&
         b.getWorkUnit() == WorkUnit::Token;
}

/// What has the lifetime of a value: its writer, or the argument itself.
static const void *sourceOf(Value value) {
  Operation *writer = value.getDefiningOp();
  return writer ? writer : value.getAsOpaquePointer();
}

namespace {
/// Phases of an argument or of the results of one op, from where they are
/// written to the last that reads one of them.
struct Lifetime {
  unsigned first, last;
  /// The phase of firstWriter().
  unsigned begin;
  /// Operands that read a result in phase `last`.
  unsigned lastReads = 0;
};

/// Bytes [begin, end) of the arena in which an argument or a result of an op
/// lies.
struct Region {
  Value value;
  uint64_t begin, end;
};

/// The last ops that wrote and read a cache of a layer.
struct LayerCache {
  Operation *writer = nullptr, *reader = nullptr;
};

class PlanVerifier {
public:
  PlanVerifier(func::FuncOp program, uint64_t arenaBytes)
      : program(program), arenaBytes(arenaBytes) {}

  LogicalResult run() {
    for (BlockArgument argument : activationArguments(program))
      if (failed(visitArgument(argument)))
        return failure();
    for (Operation &op : program.front())
      if (failed(visit(&op)))
        return failure();
    return verifyDisjoint();
  }

private:
  LogicalResult visitArgument(BlockArgument argument);
  LogicalResult visit(Operation *op);
  LogicalResult beginPhase(ForwardOp op);
  LogicalResult visitReads(Operation *op);
  LogicalResult visitCache(ForwardOp op);
  LogicalResult addRegions(ForwardOp op);
  LogicalResult addRegion(Value value, int64_t offset, int64_t stride,
                          uint64_t elementBytes, int64_t together = 1);
  InFlightDiagnostic emitError(Value value) const;
  LogicalResult verifyDisjoint();

  unsigned phaseOf(const void *source) const {
    return lifetimes.lookup(source).first;
  }
  unsigned beginOf(const Region &region) const {
    return lifetimes.lookup(sourceOf(region.value)).begin;
  }
  bool isInPhase(Operation *op) const { return op && phaseOf(op) == phase; }
  bool isInPlace(const Region &region, const Region &old) const;
  InFlightDiagnostic overlap(const Region &region, const Region &old) const;

  func::FuncOp program;
  const uint64_t arenaBytes;
  unsigned phase = 0;
  Operation *lmHead = nullptr;
  /// By sourceOf.
  llvm::DenseMap<const void *, Lifetime> lifetimes;
  /// By the layer's number and the cache's name.
  std::map<std::pair<int64_t, StringRef>, LayerCache> caches;
  /// In the order of their first phases.
  std::vector<Region> regions;
};
} // namespace

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Collects the region of an argument, which is there before the first op.
/// Nothing may overwrite an argument that another program has left.
LogicalResult PlanVerifier::visitArgument(BlockArgument argument) {
  const BufferAttr place = bufferOf(argument);
  if (!place)
    return emitError(argument)
           << "has no " << kPlaceAttr << "; run qwen-plan first";
  const FailureOr<BufferAttr> other = placeInOther(argument);
  if (failed(other))
    return failure();
  if (*other && *other != place)
    return emitError(argument)
           << "lies at " << place << " when the other program leaves it at "
           << *other;
  lifetimes[sourceOf(argument)] = {0, *other ? kAfterAll : 0, 0};
  return addRegion(argument, place.getOffset(), place.getStride(), 4);
}

LogicalResult PlanVerifier::visit(Operation *op) {
  if (isa<ViewOp>(op))
    return success();
  auto forward = dyn_cast<ForwardOp>(op);
  if (!forward)
    return visitReads(op);
  return success(succeeded(beginPhase(forward)) && succeeded(visitReads(op)) &&
                 succeeded(visitCache(forward)) &&
                 succeeded(addRegions(forward)));
}

LogicalResult PlanVerifier::beginPhase(ForwardOp op) {
  const PlanAttr plan = op.getPlanAttr();
  if (!plan)
    return op->emitOpError() << "has no plan; run qwen-plan first";
  if (lmHead) {
    InFlightDiagnostic error = op->emitOpError()
                               << "follows '" << lmHead->getName()
                               << "', whose barrier is skipped where hidden "
                                  "values are wanted";
    error.attachNote(lmHead->getLoc()) << "this must be the last op";
    return error;
  }
  if (isa<LmHeadOp>(op.getOperation()))
    lmHead = op;
  phase += plan.getBarrier() ? 1 : 0;
  Operation *writer = firstWriter(op);
  lifetimes[op] = {phase, phase, writer == op ? phase : phaseOf(writer)};
  return success();
}

/// Extends the lifetimes of the values that `op` reads. If `op` computes,
/// checks that a barrier lies between it and writes of other threads.
LogicalResult PlanVerifier::visitReads(Operation *op) {
  auto forward = dyn_cast<ForwardOp>(op);
  for (Value operand : op->getOperands()) {
    if (isTokenIntegers(operand.getType()))
      continue;
    const Value root = rootOf(operand);
    auto writer = dyn_cast_or_null<ForwardOp>(root.getDefiningOp());
    auto written = lifetimes.find(sourceOf(root));
    if (written == lifetimes.end()) {
      if (forward)
        return op->emitOpError()
               << "reads activations that have no place in the arena";
      continue;
    }
    Lifetime &lifetime = written->second;
    const bool isView = operand != root;
    if (forward && writer && lifetime.first == phase &&
        (isView || !haveSameUnits(forward, writer))) {
      InFlightDiagnostic error =
          op->emitOpError() << "reads the result of '" << writer->getName()
                            << "', which other threads write in phase " << phase
                            << ", too; a barrier is needed between them";
      error.attachNote(writer->getLoc()) << "written here";
      return error;
    }
    const unsigned reading = forward ? phase : kAfterAll;
    lifetime.lastReads = reading == lifetime.last ? lifetime.lastReads + 1 : 1;
    lifetime.last = std::max(lifetime.last, reading);
  }
  return success();
}

/// Checks that a barrier lies between `op` and an op that writes the cache that
/// `op` reads or writes, or reads the one that it writes.
LogicalResult PlanVerifier::visitCache(ForwardOp op) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (!use)
    return success();
  LayerCache &cache = caches[{use->layer, use->name}];
  if (use->kind == CacheKind::Paged && use->reads && !cache.writer)
    return op->emitOpError()
           << "reads the " << use->name << " cache of layer " << use->layer
           << ", to which no op before it appends";
  const bool isWritten = isInPhase(cache.writer);
  if (isWritten || (use->writes && isInPhase(cache.reader))) {
    Operation *other = isWritten ? cache.writer : cache.reader;
    InFlightDiagnostic error = op->emitOpError()
                               << (use->writes ? "writes" : "reads") << " the "
                               << use->name << " cache of layer " << use->layer
                               << " in phase " << phase << ", in which '"
                               << other->getName() << "' "
                               << (isWritten ? "writes" : "reads")
                               << " it; a barrier is needed between them";
    error.attachNote(other->getLoc())
        << (isWritten ? "written here" : "read here");
    return error;
  }
  if (use->writes)
    cache.writer = op;
  if (use->reads)
    cache.reader = op;
  return success();
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// Collects the bytes that `op` writes: each result with the space between
/// tokens, and the scales and sums of a quantized one. Results in one buffer
/// are written in whole panels.
LogicalResult PlanVerifier::addRegions(ForwardOp op) {
  if (op.getResultPlace() == ResultPlace::CallResult ||
      op->getNumResults() == 0)
    return success();
  const ArrayRef<BufferAttr> buffers = op.getPlanAttr().getBuffers();
  if (op.getResultPlace() == ResultPlace::OneBuffer) {
    int64_t columns = 0;
    for (Value result : op->getResults())
      columns += widthOf(result);
    const int64_t stride = buffers[0].getStride();
    if (stride < alignTo(columns, kPanelOutputs))
      return op->emitOpError() << "stride is " << stride << " when "
                               << alignTo(columns, kPanelOutputs)
                               << " or more is needed for whole panels";
    return addRegion(op->getResult(0), buffers[0].getOffset(), stride, 4);
  }
  for (auto [buffer, result] : llvm::zip_equal(buffers, op->getResults())) {
    const int64_t columns = widthOf(result);
    if (!isInBlocks(result.getType())) {
      if (failed(addRegion(result, buffer.getOffset(), buffer.getStride(), 4)))
        return failure();
      continue;
    }
    // With room for whole tiles.
    const int64_t codes = std::max<int64_t>(buffer.getStride(),
                                            alignTo(columns, kActivationBlock));
    if (failed(
            addRegion(result, buffer.getOffset(), codes, 1, kMostTileTokens)) ||
        failed(addRegion(result, buffer.getScales(),
                         ceilDiv(columns, kActivationBlock), 4,
                         kMostTileTokens)) ||
        failed(addRegion(result, buffer.getSums(), columns / kGroup, 4)))
      return failure();
  }
  return success();
}

/// Begins an error about a value: at its op, or at the program.
InFlightDiagnostic PlanVerifier::emitError(Value value) const {
  if (Operation *writer = value.getDefiningOp())
    return writer->emitOpError();
  func::FuncOp of = program;
  return of.emitError() << "argument "
                        << cast<BlockArgument>(value).getArgNumber()
                        << " of program @" << of.getSymName() << ' ';
}

/// Collects the region of `value` from `offset` on, whose tokens follow each
/// other in steps of `stride` elements, or `together` of them; integers are as
/// one token. The op's verifier has found neither to be negative.
LogicalResult PlanVerifier::addRegion(Value value, int64_t offset,
                                      int64_t stride, uint64_t elementBytes,
                                      int64_t together) {
  const auto tokens =
      static_cast<uint64_t>(alignTo(mostTokens(value), together));
  const auto begin = static_cast<uint64_t>(offset);
  // Sums and products from a file: a region too large ends past any arena.
  const uint64_t bytes = llvm::SaturatingMultiply(static_cast<uint64_t>(stride),
                                                  tokens * elementBytes);
  const uint64_t end = llvm::SaturatingAdd(begin, bytes);
  if (begin % kTensorAlign != 0)
    return emitError(value)
           << "buffer starts at byte " << begin << " when a multiple of "
           << kTensorAlign << " is needed";
  if (end > arenaBytes)
    return emitError(value)
           << "buffer [" << begin << ", " << end
           << ") ends past the arena, which has " << arenaBytes << " bytes";
  const Region region = {value, begin, end};
  regions.insert(llvm::upper_bound(regions, region,
                                   [&](const Region &a, const Region &b) {
                                     return beginOf(a) < beginOf(b);
                                   }),
                 region);
  return success();
}

/// Whether `region` is written over the in-place operand of its writer, which
/// is all that `old` is read for from then on. Each unit reads its panels
/// before it writes them.
bool PlanVerifier::isInPlace(const Region &region, const Region &old) const {
  auto op = region.value.getDefiningOp<ForwardOp>();
  auto writer = old.value.getDefiningOp<ForwardOp>();
  OpOperand *operand = op && writer ? op.getInPlaceOperand() : nullptr;
  if (!operand || operand->get().getDefiningOp() != writer ||
      region.begin != old.begin || region.end != old.end)
    return false;
  const auto number = cast<OpResult>(operand->get()).getResultNumber();
  const Lifetime &read = lifetimes.at(writer);
  return writer.getPlanAttr().getBuffers()[number] ==
             op.getPlanAttr().getBuffers()[0] &&
         read.last == phaseOf(op) && read.lastReads == 1;
}

InFlightDiagnostic PlanVerifier::overlap(const Region &region,
                                         const Region &old) const {
  Operation *writer = old.value.getDefiningOp();
  InFlightDiagnostic error = emitError(region.value)
                             << "buffer [" << region.begin << ", " << region.end
                             << ") overlaps [" << old.begin << ", " << old.end
                             << ") of ";
  if (writer)
    error << "'" << writer->getName() << "'";
  else
    error << "argument " << cast<BlockArgument>(old.value).getArgNumber();
  error << " and both are alive in phase " << beginOf(region);
  const Lifetime &lifetime = lifetimes.at(sourceOf(old.value));
  Diagnostic &note = error.attachNote(old.value.getLoc())
                     << "alive from phase " << lifetime.first << " to ";
  if (lifetime.last == kAfterAll)
    note << "the end";
  else
    note << lifetime.last;
  return error;
}

/// Checks that regions that are alive in one phase do not overlap. The regions
/// alive are ordered by where they begin, so that only neighbours are compared.
LogicalResult PlanVerifier::verifyDisjoint() {
  SmallVector<const Region *> byEnd(llvm::make_pointer_range(regions));
  const auto lastPhase = [&](const Region *region) {
    return lifetimes.at(sourceOf(region->value)).last;
  };
  llvm::sort(byEnd, [&](const Region *a, const Region *b) {
    return lastPhase(a) < lastPhase(b);
  });

  std::map<uint64_t, const Region *> alive;
  auto next = byEnd.begin();
  for (const Region &region : regions) {
    for (; lastPhase(*next) < beginOf(region); ++next)
      if (auto ended = alive.find((*next)->begin);
          ended != alive.end() && ended->second == *next)
        alive.erase(ended);
    auto after = alive.lower_bound(region.begin);
    if (after != alive.begin() && std::prev(after)->second->end > region.begin)
      return overlap(region, *std::prev(after)->second);
    if (after != alive.end() && after->first < region.end &&
        !isInPlace(region, *after->second))
      return overlap(region, *after->second);
    alive[region.begin] = &region;
  }
  return success();
}

namespace {
struct VerifyPlan final : qwen::impl::VerifyPlanBase<VerifyPlan> {
  void runOnOperation() override {
    for (func::FuncOp program : programsOf(getOperation()))
      if (failed(verify(program)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  static LogicalResult verify(func::FuncOp program) {
    if (failed(checkLimits(program)))
      return failure();
    auto arenaBytes = program->getAttrOfType<IntegerAttr>(kArenaBytesAttr);
    if (!arenaBytes)
      return program.emitError()
             << "program @" << program.getSymName() << " has no "
             << kArenaBytesAttr << "; run qwen-plan first";
    return PlanVerifier(program, static_cast<uint64_t>(arenaBytes.getInt()))
        .run();
  }
};
} // namespace
