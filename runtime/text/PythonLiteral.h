//===- PythonLiteral.h - Values as Python writes them -----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_PYTHONLITERAL_H
#define QWEN_RUNTIME_TEXT_PYTHONLITERAL_H

#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// The JSON of a literal of Python, UTF-8: strings between single quotes, True,
/// False and None, tuples, and commas before a bracket. Nothing for other names
/// and for a string without an end; of other faults, the result may be no JSON.
std::optional<std::string> jsonOfPython(std::string_view text);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_PYTHONLITERAL_H
