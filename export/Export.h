//===- Export.h - From a compiled model to a GGUF file ----------*- C++ -*-===//
//
// Other programs read what qwen-opt compiled: the same integers and scales, the
// tokenizer, the chat template and the sampling defaults.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_EXPORT_EXPORT_H
#define QWEN_EXPORT_EXPORT_H

#include "artifact/Artifact.h"

#include "qwen/ABI/StoredTypes.h"
#include "qwen/Support/WritableFile.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen {

/// What became of a model.
struct ExportSummary {
  /// Tensors of one format, which became one type.
  struct Row {
    WeightFormat from;
    StoredType to;
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };

  /// Its name in GGUF files.
  std::string architecture;
  /// In the order of WeightFormats.def.
  std::vector<Row> rows;
  uint64_t fileBytes;
  /// What GGUF files cannot say; printable.
  std::vector<std::string> warnings;
};

/// Writes `artifact`, of any target, to `file` as a GGUF file with the values
/// of its weights, and commits it. Throws Error if a weight is damaged, for
/// what GGUF files do not have (architectures, rotated models, zero points that
/// are not integers), and if the block size does not divide K.
ExportSummary exportGguf(const Artifact &artifact, WritableFile &file);

} // namespace qwen

#endif // QWEN_EXPORT_EXPORT_H
