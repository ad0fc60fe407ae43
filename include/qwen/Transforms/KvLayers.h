//===- KvLayers.h - Formats of keys and values by layer ---------*- C++ -*-===//

#ifndef QWEN_TRANSFORMS_KVLAYERS_H
#define QWEN_TRANSFORMS_KVLAYERS_H

#include "qwen/ABI/KvFormats.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

namespace qwen {

/// The formats of keys and values of single layers, by the layers' numbers.
using KvLayers = std::map<int64_t, KvFormat>;

/// An element of KvLayers as an option of a pass: LAYER=FORMAT.
struct KvLayer {
  int64_t layer;
  KvFormat format;
};

llvm::raw_ostream &operator<<(llvm::raw_ostream &out, const KvLayer &layer);

} // namespace qwen

template <>
struct llvm::cl::parser<qwen::KvLayer> : llvm::cl::basic_parser<qwen::KvLayer> {
  using basic_parser::basic_parser;
  /// Returns true for a text that is no LAYER=FORMAT.
  static bool parse(Option &option, StringRef, StringRef text,
                    qwen::KvLayer &layer);
  void anchor() override {}
};

#endif // QWEN_TRANSFORMS_KVLAYERS_H
