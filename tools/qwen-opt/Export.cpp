//===- Export.cpp - The export command ------------------------------------===//

#include "Export.h"

#include "CommandLine.h"
#include "Summary.h"

#include "qwen/Export/Export.h"
#include "qwen/Support/TemporaryFile.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

static void exportFile(const std::string &from, const std::string &to) {
  // The file comes first, so that an error about it comes at once.
  TemporaryFile output(to);
  const ExportSummary summary = exportGguf(Artifact(from), output);
  llvm::raw_ostream &out = llvm::errs();
  for (const std::string &warning : summary.warnings)
    out << "qwen-opt export: warning: " << warning << '\n';
  out << to << ": " << summary.architecture << '\n';
  for (const ExportSummary::Row &row : summary.rows)
    out << "  " << storedTypeName(row.to) << " from "
        << weightFormatName(row.from) << ": " << row.tensors << " tensors, "
        << withUnit(row.bytes) << '\n';
  out << "  file: " << summary.fileBytes << " bytes\n";
}

int qwen::exportMain(int argc, char **argv) {
  std::string from, to;
  CLI::App app("Writes a compiled model as a GGUF file with the same integers, "
               "its tokenizer, chat template and sampling defaults.",
               "qwen-opt export");
  app.add_option("FILE", from, "compiled model, for any target")->required();
  app.add_option("-o", to, "GGUF file to write")->type_name("FILE")->required();
  try {
    parseCommandLine(app, argc - 1, argv + 1);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const UsageError &error) {
    llvm::errs() << "qwen-opt export: " << error.what() << '\n';
    return 2;
  }
  try {
    exportFile(from, to);
  } catch (const std::exception &error) {
    // Errors about the tokenizer do not name the file.
    const llvm::StringRef what = error.what();
    llvm::errs() << "qwen-opt export: "
                 << (what.contains(from) || what.contains(to) ? ""
                                                              : from + ": ")
                 << what << '\n';
    return 1;
  }
  return 0;
}
