//===- qwen-opt.cpp - The Qwen compiler -----------------------------------===//
//
// qwen-opt DIR -o model.qwen compiles a checkpoint; qwen-opt report FILE says
// what a compiled model costs; qwen-opt FILE.mlir --PASS... runs passes over
// IR.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"
#include "Report.h"

#include "qwen/CodeGen/Backend.h"
#include "qwen/CodeGen/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/ErrorHandling.h"

#include <filesystem>
#include <unistd.h>

using namespace llvm;

/// Whether the arguments ask for the pass driver: one is "-" or the name of an
/// MLIR file, or there are none and something is piped in.
static bool isPassDriver(int argc, char **argv) {
  if (argc == 1)
    return isatty(STDIN_FILENO) == 0;
  for (int i = 1; i < argc; ++i) {
    const StringRef argument = argv[i];
    std::error_code ignored;
    if (argument == "-" ||
        (argument.ends_with(".mlir") && !argument.starts_with("-") &&
         !std::filesystem::is_directory(argv[i], ignored)))
      return true;
  }
  return false;
}

/// Ends the program with one line where LLVM's default is a stack trace. Files
/// are not written yet where LLVM needs memory.
static void outOfMemory(void *, const char *, bool) {
  constexpr char kMessage[] = "qwen-opt: out of memory\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(1);
}

int main(int argc, char **argv) {
  llvm::install_bad_alloc_error_handler(outOfMemory);
  if (argc > 1 && StringRef(argv[1]) == "report")
    return qwen::reportMain(argc, argv);
  if (!isPassDriver(argc, argv))
    return qwen::compileMain(argc, argv);
  qwen::registerQwenPasses();
  qwen::registerPipeline();
  qwen::registerQwenCodeGenPasses();
  mlir::DialectRegistry registry;
  registry.insert<qwen::QwenDialect>();
  qwen::registerCodeGenDialects(registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Qwen compiler, pass driver\n", registry));
}
