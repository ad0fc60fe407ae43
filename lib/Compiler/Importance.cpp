//===- Importance.cpp - An importance matrix of a model -------------------===//

#include "Importance.h"

#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <span>

using namespace qwen;

static constexpr std::string_view kExpertsPath = ".mlp.experts.",
                                  kLinearOutput = ".linear_attn.out_proj.";

/// The least a column counts beside the mean of its matrix: other texts than
/// the text of the importance matrix may have inputs that it lacks.
static constexpr double kLeastImportance = 1e-7;

/// Scales the mean of `columns` to 1, so that products of them stay within f32.
static void normalize(std::span<float> columns) {
  double sum = 0;
  for (float value : columns)
    sum += value;
  const double mean = sum / static_cast<double>(columns.size());
  for (float &value : columns)
    value = mean > 0
                ? static_cast<float>(std::max(value / mean, kLeastImportance))
                : 1.0f;
}

static ImportanceMatrix readRows(const std::filesystem::path &file) {
  try {
    return readImportanceMatrix(file);
  } catch (const Error &) {
    throwInputError();
  }
}

Importance::Importance(const std::filesystem::path &file,
                       const ModelConfig &config)
    : file(file.string()), config(config), rows(readRows(file)) {}

std::string Importance::rowOf(const std::string &matrix) const {
  return ggufOwnName(config.architecture, matrix);
}

bool Importance::isReordered(const std::string &matrix) const {
  const LayerTraits &layers = layersOf(config.architecture);
  return layers.hasLinear && !layers.joinsProjections && !config.isGguf &&
         matrix.find(kLinearOutput) != matrix.npos;
}

std::shared_ptr<const std::vector<float>>
Importance::of(const std::string &matrix, const WeightShape &shape) {
  const auto row = rows.find(rowOf(matrix));
  if (row == rows.end() || isReordered(matrix)) {
    without.push_back(matrix);
    return nullptr;
  }
  // A row of a tensor of experts has one for each.
  const bool isOfExperts =
      config.experts && matrix.find(kExpertsPath) != matrix.npos;
  const auto k = static_cast<size_t>(shape.k());
  const size_t matrices =
      isOfExperts ? static_cast<size_t>(config.experts->count) : size_t{1};
  const size_t needed = matrices * k;
  if (row->second.size() != needed)
    throw InputError(part::file(file) +
                     " is of another model: " + part::tensor(row->first) +
                     " has " + part::found(row->second.size()) +
                     " values when " + part::needed(needed) + " are needed");
  ++found;
  auto columns = std::make_shared<std::vector<float>>(row->second);
  for (size_t i = 0; i < matrices; ++i)
    normalize(std::span(*columns).subspan(i * k, k));
  return columns;
}

void Importance::requireRows() const {
  if (found == 0 && without.empty())
    throw Error(part::subject("--imatrix") +
                " has no effect: no matrix has integers that the quantizer "
                "search chooses");
  if (found == 0)
    throw InputError(part::file(file) + " is of another model: it has no row " +
                     part::needed(quote(rowOf(without.back()))));
}

std::string Importance::missing() const {
  if (without.empty())
    return "";
  const size_t others = without.size() - 1;
  return "the importance matrix has no row of " + without.front() +
         (others == 0 ? ""
          : others == 1
              ? " and of 1 other matrix"
              : " and of " + std::to_string(others) + " other matrices") +
         ": search goes by the magnitudes of weights there";
}
