//===- BeamAnswers.cpp - Beam searches beside transformers' ---------------===//
//
// beam-answers MODEL RECORD CHECKPOINT
//
// Runs the searches that test/Inputs/beams/make_beams.py recorded of a
// checkpoint and whose margins exceed 1e-4. Prints how many it compares, and
// the first that differ.
//
//===----------------------------------------------------------------------===//

#include "engine/Batcher.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

using namespace qwen;
using nlohmann::json;

static constexpr double kLeastMargin = 1e-4;

static BeamOptions optionsOf(const json &search) {
  BeamOptions options;
#define QWEN_BEAM_OPTION(Type, Field, Name, ...)                               \
  options.Field = search.value(#Name, options.Field);
#include "qwen/ABI/BeamOptions.def"
  const json &early = search["early_stopping"];
  options.earlyStopping = early.is_string() ? EarlyStopping::Never
                          : early           ? EarlyStopping::True
                                            : EarlyStopping::False;
  return options;
}

/// Whether the answers are those of the record. An end token is not in the
/// record; scores are sums in float there.
static bool matches(const std::vector<BeamTokens> &answers,
                    const json &expected, const std::vector<int32_t> &ends) {
  return std::ranges::equal(
      answers, expected, [&](const BeamTokens &found, const json &answer) {
        std::vector<int32_t> ids = found.ids;
        const bool isEnded =
            !ids.empty() && std::ranges::count(ends, ids.back()) > 0;
        if (isEnded)
          ids.pop_back();
        const auto score = answer["score"].get<double>();
        return isEnded == answer["ended"] &&
               ids == answer["ids"].get<std::vector<int32_t>>() &&
               std::fabs(found.score - score) <=
                   1e-4 * std::max(1., std::fabs(score));
      });
}

static Request requestOf(const json &facts, const json &search) {
  Request request;
  request.prompt.ids = facts["prompts"][search["prompt"].get<size_t>()]
                           .get<std::vector<int32_t>>();
  request.maxTokens = facts["count"];
  request.stopTokens = facts["eos"].get<std::vector<int32_t>>();
  request.beams = optionsOf(search);
  request.answers = request.beams.beams;
  return request;
}

static bool compare(const char *model, const json &record,
                    const std::string &checkpoint) {
  const auto found =
      std::ranges::find(record["models"], checkpoint, [](const json &facts) {
        return facts["checkpoint"].get<std::string>();
      });
  if (found == record["models"].end())
    throw Error("no search of '" + checkpoint + "' is recorded");
  const json &facts = *found;
  const auto number = found - record["models"].begin();
  const Artifact artifact(model);
  ThreadPool pool(1);
  Engine engine(artifact, pool, {.sequences = 32, .kvPages = 128});
  Batcher batcher(engine, {.paced = false});
  RequestId compared = 0, different = 0;
  for (const json &search : record["cases"]) {
    if (search["model"] != number || search["margin"] <= kLeastMargin)
      continue;
    Request request = requestOf(facts, search);
    request.onAnswers = [&, ends = request.stopTokens](
                            std::span<const BeamTokens> answers) {
      if (matches({answers.begin(), answers.end()}, search["answers"], ends) ||
          ++different > 5)
        return;
      printf("other answers of %s:\n", search.dump().c_str());
      for (const BeamTokens &answer : answers)
        printf("%f %s\n", answer.score, json(answer.ids).dump().c_str());
    };
    batcher.add(std::make_unique<Job>(std::move(request), ++compared,
                                      artifact.manifest().model));
  }
  while (!batcher.isIdle())
    batcher.step();
  printf("%s: %llu searches compared, %llu differ\n", checkpoint.c_str(),
         static_cast<unsigned long long>(compared),
         static_cast<unsigned long long>(different));
  return compared > 0 && different == 0;
}

int main(int argc, char **argv) {
  try {
    if (argc != 4)
      throw Error("usage: beam-answers MODEL RECORD CHECKPOINT");
    return compare(argv[1], json::parse(std::ifstream(argv[2])), argv[3]) ? 0
                                                                          : 1;
  } catch (const std::exception &error) {
    fprintf(stderr, "beam-answers: %s\n", error.what());
    return 2;
  }
}
