//===- Teacher.cpp - What a model in f32 answers --------------------------===//

#include "calibration/Teacher.h"

#include "engine/Logprobs.h"
#include "qwen/Support/Parallel.h"

#include <numeric>

using namespace qwen;

std::vector<float> Teacher::rowsOf(mlir::ModuleOp module,
                                   const WeightSources &weights,
                                   const SublayerChain &chain,
                                   std::span<const int32_t> ids, int64_t window,
                                   ThreadPool &pool) {
  TextRun run(module, weights, ids, window, pool);
  run.embed(chain.embedding);
  for (const Sublayer &sublayer : llvm::drop_end(chain.sublayers))
    run.run(sublayer, [](const ReadRows &) {});
  return {run.rows().begin(), run.rows().end()};
}

Teacher::Teacher(mlir::ModuleOp module, const WeightSources &weights,
                 const Sublayer &head, int64_t window, std::vector<float> rows,
                 ThreadPool &pool)
    : head(head), window(window), rows(std::move(rows)),
      run(module, weights, {}, window, pool) {
  logits(0, 0, 1);
}

std::span<const float> Teacher::logits(int64_t number, int64_t first,
                                       int64_t tokens) {
  const int64_t width = run.rowWidth();
  return run.logits(head,
                    std::span(rows).subspan(
                        static_cast<size_t>((number * window + first) * width),
                        static_cast<size_t>(tokens * width)));
}

double Teacher::divergence(Student &student, std::span<const int64_t> windows,
                           unsigned threads) {
  double sum = 0;
  size_t tokens = 0;
  student.forLogits(
      [&](int64_t first, int64_t width, std::span<const float> answers) {
        const auto size = static_cast<size_t>(width);
        std::vector<double> losses(answers.size() / size);
        const std::span<const float> wanted =
            logits(windows[static_cast<size_t>(first / window)], first % window,
                   std::ssize(losses));
        parallelFor(losses.size(), threads, [&](size_t i, unsigned) {
          const std::span<const float> p = wanted.subspan(i * stride(), size),
                                       q = answers.subspan(i * size, size);
          losses[i] = klDivergence(p, logSumExp(p), q, logSumExp(q));
        });
        sum = std::accumulate(losses.begin(), losses.end(), sum);
        tokens += losses.size();
      });
  return sum / static_cast<double>(tokens);
}
