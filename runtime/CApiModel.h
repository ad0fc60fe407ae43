//===- CApiModel.h - What the files of the C interface share ----*- C++ -*-===//

#ifndef QWEN_RUNTIME_CAPIMODEL_H
#define QWEN_RUNTIME_CAPIMODEL_H

#include "qwenrt.h"

#include "engine/Sampler.h"
#include "model/Model.h"

#include "qwen/Support/Error.h"

#include <type_traits>

struct qwen_model : qwen::Model {
  qwen_model(const char *path, int32_t threads, qwen::EngineOptions options)
      : Model(path) {
    options.check = usableCheck(options.check, artifact().fileSize());
    start(std::make_shared<qwen::ThreadPool>(threads), options);
  }

  std::vector<qwen::Token> batch;
  qwen::Engine::ProgressFn progress;
  /// Of the last qwen_forward.
  std::span<const qwen::Failure> failures;
};

namespace qwen::capi {

/// In a handler of an exception: makes it the last error of this thread.
ErrorKind noteError();

/// Runs `body`. An exception becomes the last error and the result: the
/// negative ErrorKind if it is a number, else zeros.
template <typename ResultType, typename BodyType>
ResultType guard(BodyType body) {
  try {
    return body();
  } catch (...) {
    const ErrorKind kind = noteError();
    if constexpr (std::is_integral_v<ResultType>)
      return -static_cast<ResultType>(kind);
    else
      return {};
  }
}

/// Throws Error if an argument is NULL; `name` is "function: argument".
void needArgument(const char *name, const void *argument);

/// Throws Error if the size of a struct is not `needed`. `what` names the size,
/// and `orElse` another size that the caller allows.
void checkSize(const std::string &what, size_t size, size_t needed,
               const char *orElse = "");

/// Whether a struct of options has values; without them every option has its
/// default. Throws Error if its size is not this version's.
template <typename StructType>
bool hasValues(const std::string &function, const StructType &options) {
  if (options.size != 0)
    checkSize(function + ": the size of its options", options.size,
              sizeof(options), "0 (all defaults) or ");
  return options.size != 0;
}

SamplerOptions samplerOptionsOf(const char *function, const qwen_model &model,
                                const qwen_sampling &sampling);

} // namespace qwen::capi

#endif // QWEN_RUNTIME_CAPIMODEL_H
