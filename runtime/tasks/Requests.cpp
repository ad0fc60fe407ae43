//===- Requests.cpp - What a model is asked in a task ---------------------===//

#include "tasks/Requests.h"

#include "tasks/TaskText.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <numeric>

using namespace qwen;
using namespace qwen::tasks;

//===----------------------------------------------------------------------===//
// ExampleChooser
//===----------------------------------------------------------------------===//

/// The seed of lm-eval's default sampler.
static constexpr uint32_t kExampleSeed = 1234;

ExampleChooser::ExampleChooser(const Task &chosenTask, const TaskData &taskData,
                               int64_t examples)
    : task(chosenTask), data(taskData),
      count(task.examples == Examples::None ? 0
                                            : static_cast<size_t>(examples)),
      random(kExampleSeed) {
  const size_t drawn = count && task.examples == Examples::RandomOthers;
  if (count + drawn > data.pool.size())
    throw Error(part::subject(task.name) + " has " +
                part::found(data.pool.size()) + " examples when " +
                part::needed(count + drawn) + " are needed for --num-fewshot " +
                std::to_string(count));
}

static bool isSame(const Document &a, const Document &b) {
  return a.example == b.example && a.choices == b.choices;
}

std::vector<size_t> ExampleChooser::choose(const Document &document) {
  const size_t size = data.pool.size();
  if (task.examples == Examples::First) {
    std::vector<size_t> first(count);
    std::iota(first.begin(), first.end(), size_t{0});
    return first;
  }
  if (task.examples == Examples::Random)
    return random.sample(size, count);
  const auto isDocument = [&](size_t i) {
    return isSame(data.pool[i], document);
  };
  std::vector<size_t> chosen = random.sample(size, count + 1);
  std::erase_if(chosen, isDocument);
  if (chosen.size() < count) {
    // The pool has the document several times.
    std::vector<size_t> others(size);
    std::iota(others.begin(), others.end(), size_t{0});
    std::erase_if(others, isDocument);
    if (others.size() < count)
      throw Error(part::subject(task.name) + " has " +
                  part::found(others.size()) + " other examples when " +
                  part::needed(count) + " are needed");
    chosen.clear();
    for (size_t i : random.sample(others.size(), count))
      chosen.push_back(others[i]);
  }
  chosen.resize(count);
  return chosen;
}

std::string ExampleChooser::next(const Document &document) {
  std::string text = task.description;
  if (count)
    for (size_t i : choose(document))
      text += data.pool[i].example;
  return text;
}

//===----------------------------------------------------------------------===//
// RequestMaker
//===----------------------------------------------------------------------===//

RequestMaker::RequestMaker(const Tokenizer &textTokenizer, int64_t mostTokens)
    : tokenizer(textTokenizer), most(static_cast<size_t>(mostTokens)) {
  const std::optional<int32_t> token =
      tokenizer.bosToken() ? tokenizer.bosToken() : tokenizer.eosToken();
  if (!token)
    throw Error("the tokenizer has no bos_token and no eos_token when one must "
                "stand before a text without a context");
  first = *token;
}

ScoreRequest RequestMaker::pair(std::string context,
                                const std::string &continuation) const {
  // A tokenizer joins white space with the word after it.
  const size_t end = stripEnd(context).size();
  const std::string rest = context.substr(end) + continuation;
  context.resize(end);
  ScoreRequest request;
  if (context.empty()) {
    request.continuation = tokenizer.encode(rest);
    request.context = {first};
    if (!request.continuation.empty() && request.continuation.front() == first)
      request.continuation.erase(request.continuation.begin());
  } else {
    request.context = tokenizer.encode(context);
    const std::vector<int32_t> whole = tokenizer.encode(context + rest);
    if (whole.size() > request.context.size())
      request.continuation.assign(whole.begin() + std::ssize(request.context),
                                  whole.end());
  }
  if (request.continuation.empty())
    throw Error("the continuation " + quote(continuation) + " has no token");
  if (request.continuation.size() > most)
    throw Error("a continuation has " +
                std::to_string(request.continuation.size()) +
                " tokens when the model reads at most " + std::to_string(most));
  // The last token is not read.
  const size_t size = request.context.size() + request.continuation.size();
  if (size > most + 1)
    request.context.erase(request.context.begin(),
                          request.context.begin() +
                              static_cast<ptrdiff_t>(size - most - 1));
  return request;
}

/// Each token is scored once. The last window reads as many tokens as the
/// others, so its context is longer.
std::vector<ScoreRequest> RequestMaker::windows(const std::string &text) const {
  std::vector<int32_t> tokens = {first};
  const std::vector<int32_t> encoded = tokenizer.encode(text);
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  std::vector<ScoreRequest> result;
  for (size_t begin = 1; begin < tokens.size();) {
    const size_t end = std::min(begin + most, tokens.size());
    const size_t read = end - std::min(most + 1, end);
    const auto at = [&](size_t i) {
      return tokens.begin() + static_cast<ptrdiff_t>(i);
    };
    result.push_back({{at(read), at(begin)}, {at(begin), at(end)}});
    begin = end;
  }
  return result;
}

std::vector<ScoreRequest>
RequestMaker::requests(const Task &task, const Document &document,
                       const std::string &before) const {
  if (task.isRolling)
    return windows(document.queries.front().continuation);
  std::vector<ScoreRequest> result;
  result.reserve(document.queries.size());
  for (const Query &query : document.queries)
    result.push_back(pair(before + query.context, query.continuation));
  return result;
}
