//===- XmlTags.h - The tags of calls in XML ---------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_XMLTAGS_H
#define QWEN_RUNTIME_TEXT_XMLTAGS_H

#include <cstddef>
#include <string_view>

namespace qwen::xml {

inline constexpr std::string_view kFunction = "<function=",
                                  kFunctionEnd = "</function>",
                                  kParameter = "<parameter=",
                                  kParameterEnd = "</parameter>";
/// What a name of a function ends at, and its maximum number of bytes.
inline constexpr std::string_view kNameEnds = "> \t\r\n<\"";
inline constexpr size_t kMostName = 256;

} // namespace qwen::xml

#endif // QWEN_RUNTIME_TEXT_XMLTAGS_H
