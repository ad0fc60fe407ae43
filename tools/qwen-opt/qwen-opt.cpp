//===- qwen-opt.cpp - The Qwen compiler -----------------------------------===//

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, qwen::QwenDialect>();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Qwen compiler driver\n", registry));
}
