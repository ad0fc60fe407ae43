//===- EngineCalls.cpp - Calls of programs beside forward -----------------===//

#include "engine/Engine.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;

size_t Engine::find(std::string_view program) const {
  const auto found =
      std::ranges::find(model.programs, program, &ProgramInfo::name);
  if (found == model.programs.end())
    throw Error(model.model.name + " has no program " + quote(program));
  return static_cast<size_t>(found - model.programs.begin());
}

float *Engine::rowAt(const ProgramValue &value, int64_t token) const {
  return reinterpret_cast<float *>(arena.data() + value.offset) +
         token * value.stride;
}

/// Whether each token of a call may give its row of an input.
static bool isOfTokens(const ProgramValue &input) {
  return input.offset >= 0 && input.from.empty() &&
         input.count == kTokensOfCall;
}

void Engine::checkInputs(const Token &token) const {
  for (const InputRows &row : token.inputs) {
    const ProgramValue *input =
        ProgramInfo::find(model.forward().inputs, row.input);
    if (!input || !isOfTokens(*input))
      throw Error(model.model.name + " has no input " + quote(row.input) +
                  " of which a token gives a row");
    if (std::ssize(row.values) != input->width)
      throw Error("position " + std::to_string(token.position) +
                  " of sequence " + std::to_string(token.sequence) + " has " +
                  std::to_string(row.values.size()) + " values for the input " +
                  quote(row.input) + " when " + std::to_string(input->width) +
                  " are needed");
  }
}

void Engine::fillToken(const Token &token, int64_t place) {
  for (const ProgramValue &input : model.forward().inputs) {
    if (!isOfTokens(input))
      continue;
    const auto given =
        std::ranges::find(token.inputs, input.name, &InputRows::input);
    if (given != token.inputs.end())
      std::ranges::copy(given->values, rowAt(input, place));
    else
      std::fill_n(rowAt(input, place), input.width, 0.0f);
  }
}

void Engine::fillInputs(const ProgramInfo &program,
                        std::span<const InputRows> given, int64_t first) {
  for (const ProgramValue &input : program.inputs) {
    if (input.offset < 0)
      continue;
    const auto width = static_cast<size_t>(input.width);
    const CountOfCall &count = context.counts[input.count];
    const auto rows = std::ranges::find(given, input.name, &InputRows::input);
    if (input.from.empty() != (rows != given.end()) ||
        (rows != given.end() &&
         rows->values.size() != static_cast<size_t>(count.number) * width))
      throw Error("program " + quote(program.name) + " needs rows of " +
                  std::to_string(width) + " values for its input " +
                  quote(input.name) + " from " +
                  (input.from.empty() ? "the caller, one for each token"
                                      : quote(input.from)));
    for (int64_t token = 0; token < count.number; ++token)
      if (rows != given.end())
        std::ranges::copy(
            rows->values.subspan(static_cast<size_t>(token) * width, width),
            rowAt(input, token));
      else if (first > 0 && input.count == kTokensOfCall)
        std::copy_n(rowAt(input, first + token), width, rowAt(input, token));
  }
}

void Engine::extend(size_t number, std::span<const Token> batch, size_t i) {
  const ProgramInfo &program = model.programs[number];
  const Token &token = batch[i];
  const auto placeOf = [](const Token &of) {
    return std::pair(of.sequence, of.window);
  };
  if (program.caches.empty()) {
    if (i > 0 && placeOf(token) < placeOf(batch[i - 1]))
      throw Error("program " + quote(program.name) + " reads token " +
                  std::to_string(i) + " of sequence " +
                  std::to_string(token.sequence) + ", window " +
                  std::to_string(token.window) +
                  " behind one of a later sequence or window");
    return;
  }
  if (!sequenceState.canRun(token.sequence, number, token.position))
    throw Error("position " + std::to_string(token.position) + " of sequence " +
                std::to_string(token.sequence) + " does not follow: program " +
                quote(program.name) + " has run " +
                std::to_string(sequenceState.length(token.sequence, number)));
  if (const auto kind =
          sequenceState.extend(token.sequence, token.position + 1, number))
    throw Error(
        describe({token.sequence, *kind, token.id, token.position, kNoFlag},
                 program),
        *kind);
}

void Engine::fillOwnCounts(const ProgramInfo &program,
                           std::span<const CountNumber> numbers) {
  std::ranges::fill(ownFlags, kNoFlag);
  uint32_t *next = ownFlags.data();
  CountOfCall *count = context.counts + kFirstOwnCount;
  for (const auto &[name, most] : program.limits.counts) {
    const auto found = std::ranges::find(numbers, name, &CountNumber::count);
    if (found == numbers.end())
      throw Error("a call of program " + quote(program.name) +
                  " needs a number of its count " + quote(name));
    if (found->number < 0 || found->number > most)
      throw Error("program " + quote(program.name) + " takes 0 to " +
                  std::to_string(most) + " of its count " + quote(name) +
                  " in a call, not " + std::to_string(found->number));
    *count++ = {found->number, nullptr, next};
    next += most;
  }
}

void Engine::checkOwnCounts(const ProgramInfo &program) const {
  for (size_t i = 0; i < program.limits.counts.size(); ++i) {
    const CountOfCall &count = context.counts[kFirstOwnCount + i];
    for (int64_t at = 0; at < count.number; ++at)
      if (count.flags[at] != kNoFlag)
        throw Error(describeNotFinite(program.limits.counts[i].name + " " +
                                          std::to_string(at),
                                      count.flags[at], program),
                    ErrorKind::NotFinite);
  }
}

void Engine::call(std::string_view name, std::span<const Token> batch,
                  std::span<const InputRows> given, int64_t first,
                  std::span<const CountNumber> numbers) {
  if (checker)
    checker->throwIfDamaged();
  const size_t number = find(name);
  const ProgramInfo &program = model.programs[number];
  const bool readsIds = ProgramInfo::find(program.inputs, kIdsName) != nullptr;
  const int64_t wanted = std::ranges::count(batch, true, &Token::wanted);
  if (first < 0 || std::ssize(batch) > program.limits.tokens - first ||
      wanted > program.limits.rows)
    throw Error("program " + quote(name) + " takes " +
                std::to_string(program.limits.tokens) + " tokens and " +
                std::to_string(program.limits.rows) + " rows in a call, not " +
                std::to_string(batch.size()) + " from " +
                std::to_string(first) + " on and " + std::to_string(wanted));
  const auto fail = [&](const Token &of, ErrorKind kind, uint32_t op) {
    throw Error(describe({of.sequence, kind, of.id, of.position, op}, program),
                kind);
  };
  beginCall();
  fillOwnCounts(program, numbers);
  try {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Token &token = batch[i];
      if (readsIds && !program.model.hasToken(token.id))
        fail(token, ErrorKind::InvalidToken, kNoFlag);
      extend(number, batch, i);
      addToken(token);
    }
    fillInputs(program, given, first);
    runEntry(number);
    for (size_t i = 0; i < batch.size(); ++i)
      if (flags[i] != kNoFlag)
        fail(batch[i], ErrorKind::NotFinite, flags[i]);
    checkOwnCounts(program);
  } catch (...) {
    if (!program.caches.empty())
      takeBackCall();
    throw;
  }
}

std::span<const float> Engine::row(std::string_view name,
                                   std::string_view output,
                                   size_t index) const {
  const ProgramInfo &program = model.programs[find(name)];
  const ProgramValue *value = ProgramInfo::find(program.outputs, output);
  const int64_t most = !value              ? 0
                       : value->offset < 0 ? program.limits.rows
                                           : program.limits.most(value->count);
  if (!value || index >= static_cast<size_t>(most))
    throw Error("program " + quote(name) + " has no row " +
                std::to_string(index) + " of an output " + quote(output));
  const float *row =
      value->offset < 0
          ? context.result + index * static_cast<size_t>(value->stride)
          : rowAt(*value, static_cast<int64_t>(index));
  return {row, static_cast<size_t>(value->width)};
}
