//===- ToolsFile.h - The tools of a chat ------------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_TOOLSFILE_H
#define QWEN_RUN_CHAT_TOOLSFILE_H

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace qwen::run {

/// The array of tools of a file, in OpenAI's form; an empty one if `file` is
/// empty. Throws InputError.
nlohmann::ordered_json readTools(const std::string &file);

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_TOOLSFILE_H
