//===- PlanInput.cpp - What a plan is made for ----------------------------===//

#include "PlanInput.h"

using namespace mlir;
using namespace qwen;

static LogicalResult checkLimit(func::FuncOp program, CountAttr count) {
  if (limitOf(program, count))
    return success();
  return program.emitError()
         << "program @" << program.getSymName() << " has no limit of "
         << nameOf(count) << " in " << kLimitsAttr;
}

/// Checks that the operand of `view` has the tokens that the result can have.
static LogicalResult checkView(func::FuncOp program, ViewOp view) {
  const CountAttr from = countOf(view->getOperand(0)),
                  to = countOf(view->getResult(0));
  const int64_t needed = view.getJoinedTokens() * *limitOf(program, to);
  if (*limitOf(program, from) >= needed)
    return success();
  return view->emitOpError() << "needs " << needed << ' ' << nameOf(from)
                             << " for the limit of " << nameOf(to) << " when "
                             << *limitOf(program, from) << " is the limit";
}

LogicalResult qwen::checkLimits(func::FuncOp program) {
  if (failed(checkLimit(program, tokensOfCall(program))))
    return failure();
  SmallVector<Value> values(program.getArguments());
  for (Operation &op : program.front())
    llvm::append_range(values, op.getResults());
  for (Value value : values)
    if (!isIntegers(value.getType()) &&
        failed(checkLimit(program, countOf(value))))
      return failure();
  for (auto view : program.front().getOps<ViewOp>())
    if (failed(checkView(program, view)))
      return failure();
  return success();
}

int64_t qwen::mostTokens(Value value) {
  if (isIntegers(value.getType()))
    return 1;
  auto program = cast<func::FuncOp>(value.getParentBlock()->getParentOp());
  return *limitOf(program, countOf(value)) * choicesOfToken(value);
}

static bool hasActivations(BlockArgument argument) {
  return !isTokenIntegers(argument.getType());
}

SmallVector<BlockArgument> qwen::activationArguments(func::FuncOp program) {
  return llvm::filter_to_vector(program.getArguments(), hasActivations);
}

FailureOr<BufferAttr> qwen::placeInOther(BlockArgument argument) {
  auto program = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  const unsigned number = argument.getArgNumber();
  const auto from =
      program.getArgAttrOfType<FlatSymbolRefAttr>(number, kFromAttr);
  const auto name = program.getArgAttrOfType<StringAttr>(number, kNameAttr);
  if (!from)
    return BufferAttr();
  const auto refuse = [&](const Twine &why) {
    program.emitError() << "argument " << number << " of program @"
                        << program.getSymName() << " reads " << name << " of "
                        << from << ", which " << why;
    return failure();
  };
  auto other =
      SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(program, from);
  const Value left =
      other && !other.isExternal() ? namedResult(other, name) : Value();
  if (!left)
    return refuse("has no such result");
  if (left.getType() != argument.getType())
    return refuse("has another type");
  const BufferAttr place = bufferOf(left);
  if (!place)
    return refuse("is not planned before it");
  const CountAttr count = countOf(argument);
  const int64_t has = *limitOf(other, count), needed = *limitOf(program, count);
  if (has < needed)
    return refuse("has the limit " + Twine(has) + " of " + nameOf(count) +
                  " when " + Twine(needed) + " or more is needed");
  return place;
}
