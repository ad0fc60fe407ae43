//===- Profile.h - Times of the ops of a model ------------------*- C++ -*-===//

#ifndef QWEN_RUN_PROFILE_H
#define QWEN_RUN_PROFILE_H

#include "JsonOutput.h"
#include "Peaks.h"
#include "artifact/Manifest.h"
#include "engine/Tracer.h"

#include <string>
#include <vector>

namespace qwen::run {

/// The times of the ops of `forward` in the fastest of several equal steps.
/// Slower steps mostly measure other programs on the machine.
class Profile {
public:
  explicit Profile(const Manifest &manifest);

  /// Keeps the times of `step` in `tracer` if no step before it took fewer
  /// `seconds`, with the bytes of the experts that it has read.
  void add(const Tracer &tracer, const SequenceStep &step, double seconds);

  /// Milliseconds of that step by class of op and by layer, with megabytes
  /// (10^6) moved and millions of multiplications.
  JsonText toJson() const;
  /// The same as a table, compared with the limits of the machine.
  std::string toText(const std::string &title, const Peaks &peaks) const;

private:
  /// Seconds are the mean over the threads. `waited` is the time at the barrier
  /// before the op.
  struct Times {
    double seconds = 0;
    double waited = 0;
    double bytes = 0;
    double macs = 0;

    Times &operator+=(const Times &other);
  };
  struct Row {
    std::string name;
    Times times;
  };

  /// Bytes of an op in `step`. `tracer` knows its calls.
  double bytesOf(size_t op, const Tracer &tracer,
                 const SequenceStep &step) const;
  /// All ops together.
  Times sum() const;
  /// Rows by class of op, in the order of the model.
  std::vector<Row> classes() const;
  /// Seconds of each layer, its barriers included.
  std::vector<double> layers() const;

  const int64_t layerCount;
  const ProgramInfo &program;
  std::vector<Times> ops;
  int64_t steps = 0;
  double total = 0;
};

/// The layer in an op's name ("layers.3.mlp.down_proj"), or -1.
int64_t layerOf(const std::string &op);

/// The events of one step as SVG below `title`: a line for each thread, a box
/// for each op, a gap for each wait. `y` is the upper edge of the drawing and
/// becomes its lower edge.
std::string drawStep(const std::string &title, const Manifest &manifest,
                     const Tracer &tracer, int &y);

/// The whole picture of `parts` from drawStep, which have `height` together.
std::string drawPicture(const std::string &parts, int height);

} // namespace qwen::run

#endif // QWEN_RUN_PROFILE_H
