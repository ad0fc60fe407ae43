//===- MatrixFormats.h - Formats of matrices by name ------------*- C++ -*-===//

#ifndef QWEN_TRANSFORMS_MATRIXFORMATS_H
#define QWEN_TRANSFORMS_MATRIXFORMATS_H

#include "qwen/ABI/WeightFormats.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <map>
#include <string>

namespace qwen {

/// The formats of matrices, by their names.
using MatrixFormats = std::map<std::string, WeightFormat, std::less<>>;

/// An element of MatrixFormats as an option of a pass: NAME=FORMAT.
struct MatrixFormat {
  std::string name;
  WeightFormat format;
};

llvm::raw_ostream &operator<<(llvm::raw_ostream &out,
                              const MatrixFormat &matrix);

} // namespace qwen

template <>
struct llvm::cl::parser<qwen::MatrixFormat>
    : llvm::cl::basic_parser<qwen::MatrixFormat> {
  using basic_parser::basic_parser;
  /// Returns true for a text that is no NAME=FORMAT.
  static bool parse(Option &option, StringRef, StringRef text,
                    qwen::MatrixFormat &matrix);
  void anchor() override {}
};

#endif // QWEN_TRANSFORMS_MATRIXFORMATS_H
