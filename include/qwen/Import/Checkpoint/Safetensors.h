//===- Safetensors.h - Reader of safetensors files --------------*- C++ -*-===//
//
// A *.safetensors file has 8 bytes with the length of a header, the header
// (JSON: dtype, shape and byte range of each tensor), then the bytes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H
#define QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H

#include "qwen/Import/Checkpoint/StoredTensors.h"

namespace qwen {

/// Parses a whole file, whose path is `path`. Throws Error if the header is
/// longer than the file or 100 MB (the limit of the reference implementation),
/// if it is not a JSON object of tensors, if a name occurs twice, if a shape
/// has more than 8 dimensions, if a dtype is unknown, if a byte range is
/// outside of the data or does not match dtype and shape, if ranges overlap, or
/// if a byte of the data belongs to no tensor.
std::vector<StoredTensor> parseSafetensors(std::span<const uint8_t> bytes,
                                           const std::string &path);

/// Opens the files that the weight_map of `dir`/model.safetensors.index.json
/// names, with all of their tensors; each tensor of the index must be in the
/// file that the index gives. A copy of one in another file is not used, which
/// a note says. Opens `dir`/model.safetensors if there is no index, if it names
/// no other file, or if one of its files is missing. If both are there, a note
/// says which is not used. No other file is read.
///
/// Throws Error if a folder or file is missing or unreadable, if the name of a
/// file contains a folder, and like parseSafetensors.
///
/// The names of the model begin with "model.". In place of it, names in the
/// folder may begin with "model.language_model." or "language_model.", in the
/// text of models with vision, or with nothing, in base models without a head
/// (Qwen3-Embedding).
StoredTensors openSafetensors(const std::filesystem::path &dir);

/// The name that openSafetensors gives a tensor, or the module, `name`.
std::string modelName(const std::string &name);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_SAFETENSORS_H
