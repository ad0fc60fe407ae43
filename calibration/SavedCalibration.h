//===- SavedCalibration.h - Finished sublayers on disk ----------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_SAVEDCALIBRATION_H
#define QWEN_CALIBRATION_SAVEDCALIBRATION_H

#include "qwen/Weights/Owned.h"

#include <cstdint>
#include <filesystem>
#include <span>

namespace qwen {

/// What a killed calibration needs to go on: the residual stream after the
/// finished sublayers, and the integers of their weights. A file is complete or
/// absent, and the rows are written last: they say what is finished.
class SavedCalibration {
public:
  /// `hash` covers all that the integers depend on.
  SavedCalibration(std::filesystem::path folder, uint64_t hash)
      : folder(std::move(folder)), hash(hash) {}

  /// Fills the residual stream, and returns how many sublayers are finished: 0
  /// if there are none of these inputs, or if the file is damaged; the rows are
  /// undefined then.
  size_t loadRows(std::span<float> rows) const;
  /// The integers of weight `number` of the model, or null likewise.
  WeightSourcePtr loadWeight(size_t number, const WeightSource &source,
                             WeightFormat format, Place place) const;

  /// Throw Error if the disk is full.
  void saveRows(size_t finished, std::span<const float> rows) const;
  void saveWeight(size_t number, const WeightSource &integers,
                  WeightFormat format) const;

  /// The same for the state of a distillation after so many steps.
  size_t loadState(std::span<float> state) const;
  void saveState(size_t finished, std::span<const float> state) const;

private:
  size_t load(const char *name, std::span<float> values) const;
  void save(const char *name, size_t finished,
            std::span<const float> values) const;

  const std::filesystem::path folder;
  const uint64_t hash;
};

} // namespace qwen

#endif // QWEN_CALIBRATION_SAVEDCALIBRATION_H
