//===- PageFiles.h - The files of the page ----------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PAGE_PAGEFILES_H
#define QWEN_RUNTIME_SERVER_PAGE_PAGEFILES_H

#include <span>
#include <string_view>

namespace qwen::server {

/// A file of web/dist, which the build embeds.
struct PageFile {
  /// Below web/dist, such as "app.js".
  std::string_view name;
  std::string_view contentType;
  /// The first 16 hexadecimal digits of the SHA-256 of `bytes`.
  std::string_view hash;
  std::string_view bytes;
  /// Empty where it would save less than a tenth.
  std::string_view gzip;
};

/// In the order of PageFiles.def, which the build writes: a row
/// QWEN_PAGE_FILE(Number, Name, ContentType, Hash) for each.
std::span<const PageFile> pageFiles();

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PAGE_PAGEFILES_H
