//===- Error.cpp - The exception of this project --------------------------===//

#include "qwen/Support/Error.h"

#include "qwen/Support/Text.h"

using namespace qwen;

static constexpr size_t kMost = 4000;

Error::Error(const std::string &what, ErrorKind kind)
    : std::runtime_error(printable(what.substr(0, kMost)) +
                         (what.size() > kMost ? "..." : "")),
      errorKind(kind) {}
