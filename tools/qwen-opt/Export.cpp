//===- Export.cpp - The export command ------------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "PrintSummary.h"

#include "export/Export.h"
#include "qwen/Support/TemporaryFile.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace qwen;

static void exportFile(const std::string &from, const std::string &to) {
  const Artifact artifact(from);
  TemporaryFile output(to);
  const ExportSummary summary = exportGguf(artifact, output);
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

void qwen::addExport(const Command &program) {
  struct Paths {
    std::string from, to;
  };
  const auto paths = std::make_shared<Paths>();
  const Command sub = program.addCommand(
      "export",
      "Write a compiled model as a GGUF file with the same integers, its "
      "tokenizer, chat template and sampling defaults");
  sub.addText("FILE", paths->from, "Compiled model, for any target").required();
  sub.addText("-o", paths->to, "GGUF file to write").type("FILE").required();
  sub.onRun([paths] {
    try {
      exportFile(paths->from, paths->to);
    } catch (const Error &error) {
      // Errors about the tokenizer do not name the file.
      const llvm::StringRef what = error.what();
      if (what.contains(paths->from) || what.contains(paths->to))
        throw;
      throw Error(part::file(paths->from) + ": " + what.str(), error.kind());
    }
  });
}
