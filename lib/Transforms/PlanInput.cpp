//===- PlanInput.cpp - What a plan is made for ----------------------------===//

#include "PlanInput.h"

using namespace mlir;
using namespace qwen;

FailureOr<PlanInput> qwen::readPlanInput(func::FuncOp program) {
  auto maxTokens = program->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
  auto maxRows = program->getAttrOfType<IntegerAttr>(kMaxRowsAttr);
  if (!maxTokens || !maxRows) {
    program.emitError() << "program @" << program.getSymName() << " has no "
                        << (maxTokens ? kMaxRowsAttr : kMaxTokensAttr);
    return failure();
  }
  if (maxRows.getInt() > maxTokens.getInt()) {
    program.emitError() << kMaxRowsAttr << " of program @"
                        << program.getSymName() << " is " << maxRows.getInt()
                        << " when 1 to " << maxTokens.getInt() << " is needed";
    return failure();
  }
  return PlanInput{program, maxTokens.getInt(), maxRows.getInt()};
}

Value qwen::rootOf(Value value) {
  while (auto view = value.getDefiningOp<WantedTokensOp>())
    value = view.getInput();
  return value;
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
  const auto tokensOf = [](func::FuncOp of) {
    return of->getAttrOfType<IntegerAttr>(kMaxTokensAttr).getInt();
  };
  if (tokensOf(other) < tokensOf(program))
    return refuse("has " + Twine(tokensOf(other)) + " tokens when " +
                  Twine(tokensOf(program)) + " or more is needed");
  return place;
}
