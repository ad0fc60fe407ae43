//===- Scorer.cpp - Runs the requests of tasks ----------------------------===//

#include "tasks/Scorer.h"

#include "engine/Batcher.h"
#include "engine/Logprobs.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::tasks;

namespace {
/// Requests that the same rows score.
struct Run {
  /// Their tokens without the last.
  std::vector<int32_t> prompt;
  /// Number of the last rows that score continuations.
  size_t rows;
  /// Indices of the requests.
  std::vector<size_t> requests;
};

/// A sequence with the document that it scores.
class Lane {
public:
  Lane(Batcher &batcher, const ModelInfo &model)
      : batcher(batcher), model(model) {}

  void start(size_t document, std::vector<ScoreRequest> requests);
  /// Begins the next run of the document if one has ended. Returns whether all
  /// have.
  bool isDone();
  size_t document() const { return number; }
  std::vector<Likelihood> takeScores() { return std::move(scores); }

private:
  void startRun();
  void receive(std::span<const float> row);

  Batcher &batcher;
  const ModelInfo &model;
  /// The batcher has it, and it stays.
  Job *job = nullptr;
  size_t number = 0;
  std::vector<ScoreRequest> requests;
  std::vector<Likelihood> scores;
  std::vector<Run> runs;
  /// The present run, and the number of its rows so far.
  size_t run = 0, row = 0;
};
} // namespace

/// The runs that score `requests`.
static std::vector<Run> runsOf(std::span<const ScoreRequest> requests) {
  std::vector<Run> runs;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto &[context, continuation] = requests[i];
    Run run = {context, continuation.size(), {i}};
    run.prompt.insert(run.prompt.end(), continuation.begin(),
                      continuation.end() - 1);
    const auto same = std::ranges::find_if(runs, [&](const Run &other) {
      return other.rows == run.rows && other.prompt == run.prompt;
    });
    if (same == runs.end())
      runs.push_back(std::move(run));
    else
      same->requests.push_back(i);
  }
  return runs;
}

void Lane::start(size_t document, std::vector<ScoreRequest> itsRequests) {
  number = document;
  requests = std::move(itsRequests);
  scores.assign(requests.size(), {});
  runs = runsOf(requests);
  run = 0;
  startRun();
}

void Lane::startRun() {
  const Run &next = runs[run];
  // The state before the first row, for the runs after this one.
  const auto snapshotAt = static_cast<int64_t>(next.prompt.size() - next.rows);
  row = 0;
  if (job) {
    batcher.restart(
        *job,
        {.prompt = next.prompt, .snapshotAt = snapshotAt, .rows = next.rows});
    return;
  }
  Request request;
  request.prompt.ids = next.prompt;
  request.snapshotAt = snapshotAt;
  request.rows = {RowKind::Logits,
                  [this](std::span<const float> logits) { receive(logits); },
                  next.rows};
  request.isContinued = true;
  auto first = std::make_unique<Job>(std::move(request), 1, model);
  job = first.get();
  batcher.add(std::move(first));
}

void Lane::receive(std::span<const float> logits) {
  const double sum = logSumExp(logits);
  const auto best =
      static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  for (size_t request : runs[run].requests) {
    const int32_t id = requests[request].continuation[row];
    scores[request].sum +=
        static_cast<float>(logits[static_cast<size_t>(id)] - sum);
    scores[request].isGreedy &= id == best;
  }
  ++row;
}

bool Lane::isDone() {
  if (!job->ended())
    return false;
  job->throwIfFailed();
  if (++run == runs.size())
    return true;
  startRun();
  return false;
}

void qwen::tasks::scoreDocuments(Engine &engine, const RequestsFn &next,
                                 const ScoresFn &done) {
  Batcher batcher(engine, {.paced = false});
  const auto most = static_cast<size_t>(engine.state().maxSequences());
  std::vector<std::unique_ptr<Lane>> lanes;
  size_t documents = 0;
  /// Gives a lane the next document. Returns whether there was one.
  const auto startNext = [&](Lane &lane) {
    std::optional<std::vector<ScoreRequest>> requests = next();
    if (requests)
      lane.start(documents++, std::move(*requests));
    return requests.has_value();
  };
  while (lanes.size() < most) {
    auto lane = std::make_unique<Lane>(batcher, engine.manifest().model);
    if (!startNext(*lane))
      break;
    lanes.push_back(std::move(lane));
  }
  // Lanes without a document stay: their jobs call them.
  std::vector<Lane *> busy;
  busy.reserve(lanes.size());
  for (const std::unique_ptr<Lane> &lane : lanes)
    busy.push_back(lane.get());
  while (!busy.empty()) {
    batcher.step();
    std::erase_if(busy, [&](Lane *lane) {
      if (!lane->isDone())
        return false;
      done(lane->document(), lane->takeScores());
      return !startNext(*lane);
    });
  }
}
