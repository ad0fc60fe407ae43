//===- SplitName.h - Names of split GGUF files ------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_SPLITNAME_H
#define QWEN_SUPPORT_SPLITNAME_H

#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

/// The name of file `number`, from 0, of the split files that `file` is one of,
/// or nullopt if its name is not of the form NAME-00001-of-00003.gguf.
std::optional<std::string> ggufSplitName(const std::string &file,
                                         uint64_t number);

/// The name of the model that `file` is or is a part of: NAME of NAME.gguf and
/// of NAME-00001-of-00003.gguf; of another name, all of it.
std::string ggufModelName(const std::string &file);

} // namespace qwen

#endif // QWEN_SUPPORT_SPLITNAME_H
