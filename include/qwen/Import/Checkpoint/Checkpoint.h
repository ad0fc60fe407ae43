//===- Checkpoint.h - What the compiler reads -------------------*- C++ -*-===//
//
// A checkpoint is a Hugging Face folder or a GGUF file. The code that compiles
// one does not know which.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_CHECKPOINT_H
#define QWEN_IMPORT_CHECKPOINT_CHECKPOINT_H

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Import/Checkpoint/ModelScope.h"
#include "qwen/Import/Checkpoint/StoredTensors.h"
#include "qwen/Weights/WeightSource.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Changes weights of a base model. They still have the values of its files:
/// fused projections of Qwen 1 and the queries of hybrids are not divided, and
/// norms have no factors. `model.tied` is what the tensors say. May add notes
/// to `model`, and the lm_head.weight of a tied model, which ends that.
using AdaptFn = std::function<void(ModelConfig &model, WeightSources &weights)>;

class Checkpoint;

/// The configuration of a program, from the text model's (Checkpoint::config),
/// the tensors or the keys of config.json (readJsonObject); or nothing if the
/// checkpoint has no such program.
using ScopeConfigFn = std::optional<ModelConfig>(const Checkpoint &checkpoint);

/// Gives ops the weights of the program of a scope: divides tensors that
/// several of its weights share, and computes what no tensor has. `config` is
/// the program's own. Throws Error like Checkpoint::weight.
using ScopeDivideFn = void(Checkpoint &checkpoint, const ModelScope &scope,
                           const ModelConfig &config);

/// The text model's own.
std::optional<ModelConfig> textConfig(const Checkpoint &checkpoint);

/// Divides the weights of the layers of a decoder:
///  * q_proj of hybrids, which has the queries of each head and then their
///    gate;
///  * in_proj_qkvz and in_proj_ba, which have the outputs of each key head one
///    after another, where the model joins them and the checkpoint does;
///  * matrices of experts. All of a layer become one weight: its gate_proj is
///    "...mlp.experts.gate_proj.weight", [experts, outputs, K]. A checkpoint
///    may have a matrix for each expert, or one for all, or gate and up of all
///    in one, gate first.
void divideLayers(Checkpoint &checkpoint, const ModelScope &scope,
                  const ModelConfig &config);

/// Pads the weight `name`, of `shape` in the checkpoint, with zeros: each of
/// its sizes becomes a multiple of kGroup, which ops need of a width. Throws
/// Error like Checkpoint::weight.
void padWeight(Checkpoint &checkpoint, const std::string &name,
               const WeightShape &shape);

/// A scope, and how the kind of its program reads it.
struct ScopedModel {
  ModelScope scope = {};
  ScopeConfigFn *config = textConfig;
  ScopeDivideFn *divide = divideLayers;
};

/// The scopes of a checkpoint of one text model.
inline constexpr ScopedModel kTextScopes[] = {{}};

class Checkpoint {
public:
  virtual ~Checkpoint() = default;
  Checkpoint(const Checkpoint &) = delete;
  Checkpoint &operator=(const Checkpoint &) = delete;

  /// The folder or file.
  const std::filesystem::path &path() const { return where; }
  const ModelConfig &config() const { return model; }
  /// The configuration of one of the scopes that the checkpoint was opened for,
  /// if it has that.
  std::optional<ModelConfig> configOf(const ModelScope &scope) const;
  const GenerationConfig &generation() const { return sampling; }
  /// The tensors, by the names of the Hugging Face model.
  const StoredTensors &tensors() const { return stored; }
  /// The weights with the values that ops read, by the names of the Hugging
  /// Face model: q, k and v are apart, as are q and its gate
  /// ("...q_proj.gate.weight"), and norms have factors. That is so in all
  /// scopes that the checkpoint was opened for (ScopedModel::divide). The
  /// compiler may replace them and add others.
  const WeightSources &weights() const { return sources; }
  WeightSources &weights() { return sources; }
  /// The weight `name`, which ops read in `shape`. Throws
  /// Error if it is missing, has another shape, or is no floats or blocks.
  const WeightSources::Entry &weight(const std::string &name,
                                     const WeightShape &shape) const;

  /// Gives each down_proj its columns in the order of its integers, and
  /// gate_proj and up_proj their outputs: what is between them works value by
  /// value. Other products read values whose order is fixed, by heads or by the
  /// residual stream: matrices whose integers have another order lose them
  /// (inModelOrder).
  void orderColumns();

  /// Gives the model YaRN and the context that it makes. Throws Error if
  /// positions cannot be scaled: of a Qwen 1, twice, to no more positions than
  /// the model has, or to more than kMaxModelPosition.
  void scaleRope(const RopeScaling &scaling);

  /// Removes layers of the text model; those behind them get their numbers.
  /// Returns the names of the tensors that the removed layers read. Throws
  /// Error if the model lacks a layer, if no layer stays, or if the remaining
  /// layers break the pattern of a hybrid.
  std::set<std::string> removeLayers(const Pruning &pruning);

  /// Gives the program that drafts a head of the rows of `tokens`, which are
  /// ascending ids, and its configuration OutputKind::Drafts: the draft head if
  /// the checkpoint was opened for it and has one, else the text model. Throws
  /// Error if the model gives no logits.
  void trimHead(const std::vector<int32_t> &tokens);

  /// The name that the tensor `name` of the Hugging Face model has in this
  /// checkpoint.
  virtual std::string ownName(std::string_view name) const {
    return std::string(name);
  }

  /// The shape that the weight `name` has in this checkpoint, where ops read
  /// it in `shape`.
  virtual WeightShape ownShape(std::string_view /*name*/,
                               const WeightShape &shape) const {
    return shape;
  }

  /// Reads the tokenizer. Returns nullopt if there is none. Throws Error if it
  /// is invalid or not of Qwen's kind.
  virtual std::optional<CheckpointTokenizer> readTokenizer() const = 0;

protected:
  /// The tensors decide whether the model is tied, whatever the configuration
  /// says, and whether it gives logits. A constructor ends with divideScopes().
  Checkpoint(std::filesystem::path path, ModelConfig model,
             GenerationConfig sampling, StoredTensors stored,
             WeightSources sources, std::span<const ScopedModel> scopes);

  /// Calls `adapt`, if there is one.
  void adaptWeights(const AdaptFn &adapt);
  /// Gives each program of the checkpoint its weights.
  void divideScopes();

private:
  /// Whether two weights have the bytes of the same tensors.
  bool hasSameTensors(std::string_view one, std::string_view other) const;
  void settleOutput();
  void noteOutput();

  std::filesystem::path where;
  ModelConfig model;
  GenerationConfig sampling;
  StoredTensors stored;
  WeightSources sources;
  const std::vector<ScopedModel> scopes;
};

/// Opens a Hugging Face folder or a GGUF file; of a split one, the first file.
/// `scopes` are the scopes of its programs. Throws Error, which names file and
/// key or tensor, if it is invalid or not supported, and what `adapt` throws.
std::unique_ptr<Checkpoint>
openCheckpoint(const std::filesystem::path &path, const AdaptFn &adapt = {},
               std::span<const ScopedModel> scopes = kTextScopes);

/// The name in `model` of the tensor or module that a Hugging Face folder calls
/// `name`: the same if the model has none.
std::string folderModelName(const ModelConfig &model, const std::string &name);

/// The name of the model: the name of the folder or the file, without the
/// endings of a GGUF file.
std::string checkpointName(const std::filesystem::path &path);

/// Bytes of the files with weights, which openCheckpoint maps. Files that
/// cannot be read count as empty.
uint64_t weightFileBytes(const std::filesystem::path &path);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_CHECKPOINT_H
