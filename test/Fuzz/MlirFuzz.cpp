//===- MlirFuzz.cpp - Modules of the qwen dialect -----------------------===//
//
// MLIR itself is not instrumented. The branches of the dialect's own code guide
// this target, which tests the verifiers.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

#include <memory>

using namespace qwen;

/// Attributes live as long as their context: a new one now and then.
static mlir::MLIRContext &freshContext() {
  constexpr int kInputs = 500;
  static std::unique_ptr<mlir::MLIRContext> context;
  static int left = 0;
  if (left-- == 0) {
    left = kInputs;
    context = std::make_unique<mlir::MLIRContext>(
        mlir::MLIRContext::Threading::DISABLED);
    context->loadDialect<QwenDialect>();
  }
  return *context;
}

static std::string print(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  return text;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext &context = freshContext();
  const mlir::ScopedDiagnosticHandler quiet(&context,
                                            [](mlir::Diagnostic &) {});
  const std::string text(fuzz::asText(data, size));
  const auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return 0;
  const std::string printed = print(*module);
  const auto again = mlir::parseSourceString<mlir::ModuleOp>(printed, &context);
  fuzz::require(bool(again), "a printed module does not parse");
  fuzz::require(print(*again) == printed, "a printed module is another");
  return 0;
}
