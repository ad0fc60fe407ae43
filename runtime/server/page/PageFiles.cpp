//===- PageFiles.cpp - The files of the page ------------------------------===//

#include "server/page/PageFiles.h"

#include <array>

#include "PageBytes.inc"

using namespace qwen;
using namespace qwen::server;

static std::string_view textOf(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::span<const PageFile> server::pageFiles() {
  static const auto files = std::to_array<PageFile>({
#define QWEN_PAGE_FILE(Number, Name, ContentType, Hash)                        \
  {Name, ContentType, Hash, textOf(kBytes##Number), textOf(kGzip##Number)},
#include "PageFiles.def"
  });
  return files;
}
