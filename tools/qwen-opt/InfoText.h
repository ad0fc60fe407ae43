//===- InfoText.h - What info says of a checkpoint, as text -----*- C++ -*-===//

#ifndef QWEN_OPT_INFOTEXT_H
#define QWEN_OPT_INFOTEXT_H

#include <nlohmann/json.hpp>

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace qwen {

/// Prints what `info --json` prints, as lines and a table.
void printInfo(const nlohmann::ordered_json &all, llvm::raw_ostream &out);

} // namespace qwen

#endif // QWEN_OPT_INFOTEXT_H
