//===- ToolsFile.cpp - The tools of a chat --------------------------------===//

#include "chat/ToolsFile.h"

#include "Output.h"
#include "model/ToolFormat.h"

#include "qwen/Support/InputError.h"
#include "qwen/Support/Json.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using nlohmann::ordered_json;

ordered_json qwen::run::readTools(const std::string &file) {
  constexpr uint64_t kMostBytes = 1 << 20;
  if (file.empty())
    return ordered_json::array();
  const std::string text =
      readFile(file, kMostBytes, "a file of tools is short");
  try {
    checkJson(text, part::file(file), {});
    ordered_json tools = ordered_json::parse(text);
    (void)toolsOf(tools, file);
    return tools;
  } catch (const Error &error) {
    throw InputError(error.what());
  }
}
