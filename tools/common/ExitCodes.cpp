//===- ExitCodes.cpp - What the exit status of a tool says ----------------===//

#include "ExitCodes.h"

#include "CommandLine.h"

#include "qwen/Support/InputError.h"

#include <new>

using namespace qwen;

template <typename T> static bool isA(const std::exception &error) {
  return dynamic_cast<const T *>(&error) != nullptr;
}

static bool isLimit(const std::exception &error) {
  if (isA<std::bad_alloc>(error))
    return true;
  const auto *own = dynamic_cast<const Error *>(&error);
  if (!own)
    return false;
  switch (own->kind()) {
  case ErrorKind::NoMemory:
  case ErrorKind::NoPage:
  case ErrorKind::PastContext:
  case ErrorKind::NoSequence:
  case ErrorKind::QueueFull:
    return true;
  default:
    return false;
  }
}

int qwen::exitCodeOf(const std::exception &error) {
  if (const auto *other = dynamic_cast<const ProgramError *>(&error))
    return other->status;
#define QWEN_EXIT_CODE(Name, Status, Test, Help)                               \
  if (Test)                                                                    \
    return Status;
#include "ExitCodes.def"
}
