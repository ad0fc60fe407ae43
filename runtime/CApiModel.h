//===- CApiModel.h - What the files of the C interface share ----*- C++ -*-===//

#ifndef QWEN_RUNTIME_CAPIMODEL_H
#define QWEN_RUNTIME_CAPIMODEL_H

#include "qwenrt.h"

#include "engine/Sampler.h"
#include "grammar/Grammar.h"
#include "model/MakeEngine.h"
#include "model/Turns.h"
#include "text/CallParser.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <functional>
#include <type_traits>

struct qwen_threads {
  std::shared_ptr<qwen::ThreadPool> pool;
};

struct qwen_model : qwen::Model {
  /// `options` as qwen_options has them, and what it has besides. Throws Error.
  qwen_model(const char *path, const qwen::EngineOptions &options,
             const qwen_threads *threads, const char *chatTemplate,
             const char *draftModel);

  qwen::Engine &engine() { return *running; }
  const qwen::Engine &engine() const { return *running; }

  std::vector<qwen::Token> batch;
  qwen::Engine::ProgressFn progress;
  /// The sequences that stopped in the last qwen_forward.
  std::span<const qwen::Failure> failures;

  /// The tokens that end an answer, also of a chat if it has them.
  std::vector<int32_t> ends() const;
  /// Makes it first. Throws Error.
  const qwen::GrammarCompiler &grammars() const;
  /// What its chat template takes. Throws Error without one.
  const qwen::TurnRules &turnRules() const;

private:
  std::unique_ptr<qwen::Engine> running;
  mutable std::once_flag grammarsMade;
  mutable std::unique_ptr<qwen::GrammarCompiler> compiler;
  mutable std::once_flag rulesMade;
  mutable qwen::TurnRules rules;
};

/// What a grammar begins an answer with. A function, so that programs that make
/// no grammar do not contain the library of grammars.
struct qwen_grammar {
  const qwen_model *model;
  std::function<std::shared_ptr<qwen::TokenConstraint>(
      std::span<const int32_t> prompt, bool afterReasoning)>
      start;
};

struct qwen_template {
  const qwen::ChatFormat format;
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
void needArgument(const std::string &name, const void *argument);

/// Needs the other arguments of a function.
struct Need {
  const char *function;
  /// `count` is the number of elements that the argument has.
  void operator()(const char *name, const void *argument,
                  size_t count = 1) const {
    if (count)
      needArgument(std::string(function) + ": " + name, argument);
  }
};

constexpr const char *nameOf(const qwen_model *) { return "model"; }
constexpr const char *nameOf(const qwen_parser *) { return "parser"; }
constexpr const char *nameOf(const qwen_sampler *) { return "sampler"; }
constexpr const char *nameOf(const qwen_scheduler *) { return "scheduler"; }
constexpr const char *nameOf(const qwen_template *) { return "chat_template"; }

/// Runs the body of `function`, which needs its first argument.
template <typename ResultType, typename HandleType, typename BodyType>
ResultType with(const char *function, HandleType *handle, BodyType body) {
  return guard<ResultType>([&]() -> ResultType {
    const Need need{function};
    need(nameOf(handle), handle);
    if constexpr (std::is_invocable_v<BodyType>)
      return body();
    else
      return body(need);
  });
}

/// Writes at most `capacity` elements of `all`, and returns the number of all.
template <typename AllType, typename ElementType>
int64_t copyOut(const AllType &all, ElementType *to, size_t capacity) {
  std::copy_n(all.begin(), std::min(all.size(), capacity), to);
  return std::ssize(all);
}

/// Throws Error if `flags` has a flag that the function does not know.
void checkFlags(const char *function, int32_t flags, int32_t known);

/// The options in `sampling`, or the model's if it is null. `what` names the
/// argument in errors.
SamplerOptions samplerOptionsOf(const std::string &what,
                                const qwen_model &model,
                                const qwen_sampling *sampling);

/// How calls of `tools` are read, which are JSON or null (no calls). `function`
/// begins errors.
CallOptions callOptionsOf(const char *function, const qwen_model &model,
                          const char *tools, const char *format);

} // namespace qwen::capi

#endif // QWEN_RUNTIME_CAPIMODEL_H
