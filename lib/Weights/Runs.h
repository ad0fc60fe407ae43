//===- Runs.h - Outputs that follow each other in other sources -*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_RUNS_H
#define QWEN_LIB_WEIGHTS_RUNS_H

#include "qwen/Numerics/Encode.h"
#include "qwen/Weights/WeightSource.h"

#include <algorithm>
#include <functional>

namespace qwen {

/// A source, derived from `Base`, whose outputs stand in runs in other sources.
template <typename Base> class RunsSource : public Base {
public:
  void read(int64_t first, int64_t count, float *values) const override {
    forRuns(first, count,
            [&](const WeightSource &from, int64_t begin, int64_t run,
                int64_t done) {
              from.read(begin, run, values + done * this->shape().k());
            });
  }

  OutputSet kept(WeightFormat format, int64_t first,
                 int64_t count) const override {
    OutputSet outputs = 0;
    forRuns(first, count,
            [&](const WeightSource &from, int64_t begin, int64_t run,
                int64_t done) {
              outputs |= from.kept(format, begin, run) << done;
            });
    return outputs;
  }

  numerics::EncodeError keep(WeightFormat format, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override {
    numerics::EncodeError error;
    const int64_t count =
        std::min(kPanelOutputs - lane, this->shape().outputs() - first);
    forRuns(first, count,
            [&](const WeightSource &from, int64_t begin, int64_t run,
                int64_t done) {
              error += from.keep(format, begin, someOf(outputs, done, run),
                                 lane + done, panel);
            });
    return error;
  }

protected:
  using Base::Base;

  /// Receives a run: `run` outputs of `from` from output `begin` on, after
  /// `done` outputs of runs before it.
  using VisitFn = std::function<void(const WeightSource &from, int64_t begin,
                                     int64_t run, int64_t done)>;
  /// Divides `count` outputs from `first` on into runs.
  virtual void forRuns(int64_t first, int64_t count,
                       const VisitFn &visit) const = 0;
};

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_RUNS_H
