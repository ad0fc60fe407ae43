//===- qwen-opt.cpp - The Qwen compiler -----------------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  qwen::registerQwenPasses();
  qwen::registerPipeline();
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, qwen::QwenDialect>();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Qwen compiler driver\n", registry));
}
