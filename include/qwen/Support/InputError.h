//===- InputError.h - Errors by what a user can do --------------*- C++ -*-===//
//
// Apart from Error.h, because only programs tell these errors from others.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_INPUTERROR_H
#define QWEN_SUPPORT_INPUTERROR_H

#include "qwen/Support/Error.h"
#include "qwen/Support/OutputTarget.h"

namespace qwen {

/// The error of a file that is missing, unreadable, damaged or not supported.
class InputError : public Error {
public:
  using Error::Error;
  explicit InputError(const Error &error) : Error(error) {}
};

/// The error of a model that was compiled for another CPU.
class TargetError : public Error {
public:
  using Error::Error;
};

/// Throws the current exception: an Error that is neither a TargetError nor an
/// OutputError as InputError.
[[noreturn]] inline void throwInputError() {
  try {
    throw;
  } catch (const InputError &) {
    throw;
  } catch (const TargetError &) {
    throw;
  } catch (const OutputError &) {
    throw;
  } catch (const Error &error) {
    throw InputError(error);
  }
}

} // namespace qwen

#endif // QWEN_SUPPORT_INPUTERROR_H
