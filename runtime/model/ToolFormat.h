//===- ToolFormat.h - How a chat template writes calls ----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_TOOLFORMAT_H
#define QWEN_RUNTIME_MODEL_TOOLFORMAT_H

#include "model/ChatFormat.h"
#include "text/CallFormat.h"

namespace qwen {

/// The format in which a model calls tools: the one that reads back a call of a
/// short conversation that the template renders, or the one called `name`, if
/// that is not empty. Throws Error if the template ignores `tools`, or if no
/// format reads what it writes.
const CallFormat &findToolFormat(const ChatFormat &format,
                                 std::string_view name = {});

/// The tools of a JSON array of OpenAI's form, each `{"type": "function",
/// "function": {"name", "parameters"}}`. Throws Error, which names the element
/// after `name`, for another form.
Tools toolsOf(const nlohmann::ordered_json &array, const std::string &name);

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_TOOLFORMAT_H
