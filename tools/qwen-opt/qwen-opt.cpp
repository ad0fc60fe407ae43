//===- qwen-opt.cpp - The Qwen compiler -----------------------------------===//
//
// qwen-opt CHECKPOINT -o model.qwen compiles a checkpoint; qwen-opt report FILE
// prints the cost of a compiled model; qwen-opt export FILE writes it as a GGUF
// file; qwen-opt FILE.mlir --PASS... runs passes.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"
#include "ExitCodes.h"

#include "qwen/ABI/CpuFeatures.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <unistd.h>

using namespace llvm;

/// Whether the arguments select the pass driver: one of them is "-" or names an
/// MLIR file, or there are none and standard input is a pipe.
static bool isPassDriver(int argc, char **argv) {
  if (argc == 1)
    return isatty(STDIN_FILENO) == 0;
  for (StringRef command : {
#define QWEN_OPT_COMMAND(Name, Text) Text,
#include "Commands.def"
       })
    if (command == argv[1])
      return false;
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

/// Ends the program with one line, without allocating memory. LLVM would abort
/// or print a stack trace.
[[noreturn]] static void die(StringRef reason, qwen::ExitCode status) {
  qwen::removeTemporaryFile();
  for (StringRef part :
       {StringRef("qwen-opt: "), reason.split('\n').first, StringRef("\n")})
    (void)qwen::writeAll(STDERR_FILENO, part.data(), part.size());
  _exit(static_cast<int>(status));
}

static void outOfMemory(void *, const char *, bool) {
  die("out of memory", qwen::ExitCode::Limit);
}

static void fatalError(void *, const char *reason, bool) {
  die(reason, qwen::ExitCode::Failure);
}

/// Ends the program on a processor that lacks what its own code needs, which is
/// what every model needs, too.
static void requireLeastFeatures() {
  const qwen::CpuFeatureSet missing =
      qwen::leastFeatures(qwen::hostArch()) - qwen::hostFeatures();
  if (!missing.empty())
    die("this CPU lacks " + qwen::toString(missing) +
            ", which qwen-opt and the models that it compiles for this "
            "architecture need; use another machine",
        qwen::ExitCode::Failure);
}

static int runPassDriver(int argc, char **argv) {
  qwen::registerQwenPasses();
  qwen::registerPipeline();
  qwen::registerQwenLowerPasses();
  mlir::DialectRegistry registry;
  registry.insert<qwen::QwenDialect>();
  qwen::registerCodeGenDialects(registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Qwen compiler, pass driver\n", registry));
}

/// Flushes the streams. Returns `status`, or 1 if writing to standard output
/// failed.
static int closeStreams(int status) {
  raw_fd_ostream &out = outs();
  out.flush();
  if (out.has_error()) {
    errs() << "qwen-opt: cannot write to standard output: "
           << out.error().message() << '\n';
    out.clear_error();
    status = 1;
  }
  // Streams with errors abort the program when they are destroyed.
  errs().clear_error();
  return status;
}

int main(int argc, char **argv) {
  qwen::prepareProcess("qwen-opt");
  install_bad_alloc_error_handler(outOfMemory);
  install_fatal_error_handler(fatalError);
  requireLeastFeatures();
  if (isPassDriver(argc, argv))
    return closeStreams(runPassDriver(argc, argv));
  return closeStreams(qwen::compileMain(argc, argv));
}
