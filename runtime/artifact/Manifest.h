//===- Manifest.h - Facts of a compiled model -------------------*- C++ -*-===//
//
// The manifest of an artifact as a struct, and its parser. In the file it is
// one JSON object (docs/artifact.md):
//
//   {
//     "compiler": "qwen-opt 0.1",
//     "numerics_version": 1,
//     "model": {"name": "stories", "tokenizer_vocab": 4096, "context": 1024,
//               "output": "scores", "labels": ["yes", "no"],
//               "pooling": "rank"},
//     "targets": [{"name": "znver4", "arch": "x86-64",
//                  "features": ["avx2", ...], "kernels": ["...", ...]}],
//     "kv": {"page_tokens": 64, "page_bytes": 196608, "token_bytes": 3072},
//     "programs": [{
//       "name": "forward",
//       "model": {
//         "architecture": "Qwen3ForCausalLM", "vocab_size": 4096,
//         "hidden_size": 256, "layers": 6, "heads": 4, "kv_heads": 2,
//         "head_dim": 64, "intermediate_size": 768, "rope_theta": 10000.0,
//         "rms_norm_eps": 1e-06, "tied": true, "max_context": 1024,
//         "yarn": {"factor": 4.0, "positions": 32768, "fast": 32.0,
//                  "slow": 1.0, "scale": 1.1386294},
//         "experts": {"count": 128, "active": 8, "width": 768,
//                     "shared_width": 0, "normalized": true},
//         ... (each other part of kModelParts that the model has)
//         "tokens": [0, 1, 5, ...]
//       },
//       "limits": {"tokens": 256, "rows": 16,
//                  "counts": [{"name": "merged", "most": 64}]},
//       "arena_bytes": 1234560,
//       "caches": [{"name": "kv", "kind": "paged", "format": "f16",
//                   "layer_bytes": 512, "layers": [0, 1, 2, 3, 4, 5]}],
//       "inputs": [{"name": "ids"}, {"name": "positions"}],
//       "outputs": [{"name": "logits", "width": 4096, "stride": 4096}],
//       "ops": ["model.layers.0.self_attn.qkv", ...],
//       "work": [{"kind": "linear", "weight_bytes": 73728,
//                 "active_bytes": 73728, "token_bytes": 3344,
//                 "calls": [{"gemm": 1, "macs": 131072}]}, ...],
//       "kernels": [[[12], [0, 4], ...]]
//     }],
//     "images": [{"name": "draft", "bytes": 4194304}],
//     "tensors": [{"name": "...", "shape": [512, 256], "format": "q4_0",
//                  "offset": 0, "bytes": 73728,
//                  "segments": [{"name": "...", "outputs": 256}, ...],
//                  "experts": 128, "stride": 2654208}],
//     "generation": {"do_sample": true, "temperature": 0.8, "top_k": 40,
//                    "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.05,
//                    "bos_token_id": 4093, "eos_token_id": [4095, 4093]},
//     "quantization": {"quantizer": "gptq", "rotated": true, "awq": false,
//                      "tokens": 32768, "text": "5d41402abc4b2a76...",
//                      "distilled": {"steps": 48, "tokens": 24576}},
//     "pruning": {"method": "shortgpt", "layers": [3, 7]}
//   }
//
// All keys are required, except: keys of "work" other than "kind" (0, false
// or none), keys of "calls" (0), "step_back" (0), "state_rows"
// (only with "step_back", which needs true), "counts" (no others) and, in
// a program without logits, "rows" (0) of "limits", "count" of a value (0: the
// tokens of the call), "from" of an input (the caller gives it), "tokens" (all
// ids have logits), "output" ("logits"), "labels" (only with "scores", which
// need them), "pooling" ("last"), parts of a model (none), "format" of a cache
// (paged ones only), "stride" (with "experts" of a tensor only), "images" (the
// file has all weights), "bos_token_id", "quantization" (integers of the
// checkpoint or rounded), "distilled" (scales did not learn) and "pruning" (no
// layer was removed). There are no other keys.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_MANIFEST_H
#define QWEN_RUNTIME_ARTIFACT_MANIFEST_H

#include "qwen/ABI/Caches.h"
#include "qwen/ABI/CpuFeatures.h"
#include "qwen/ABI/GenerationConfig.h"
#include "qwen/ABI/ModelOutput.h"
#include "qwen/ABI/ModelShape.h"
#include "qwen/ABI/OpWork.h"
#include "qwen/ABI/Program.h"
#include "qwen/ABI/Pruning.h"
#include "qwen/ABI/Quantization.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The model over whose weights a program runs.
struct ProgramModel : ModelParts {
  std::string architecture;
  /// The most positions of a sequence, by its checkpoint.
  int64_t maxContext;
  /// The ids of the logits of the program, ascending; empty: all.
  std::vector<int32_t> tokens = {};

  /// The id of logit `place`.
  int32_t tokenOf(int64_t place) const {
    return tokens.empty() ? static_cast<int32_t>(place)
                          : tokens[static_cast<size_t>(place)];
  }
  bool hasToken(int32_t id) const { return id >= 0 && id < vocabSize; }
};

/// The model of `forward`, and what a caller gives it and gets of it.
struct ModelInfo : ProgramModel {
  std::string name;
  /// Number of the tokenizer's ids, or vocabSize without a tokenizer. Ids from
  /// here to vocabSize are padding and are never sampled.
  int64_t tokenizerVocab;
  /// Maximum number of positions in a sequence, up to `maxContext`.
  int64_t context;
  ModelOutput output = {};

  /// Floats in a row of logits or scores.
  int64_t outputWidth() const { return output.width(vocabSize); }
  /// For errors about a context that is too short: its length and, if the
  /// checkpoint allows a longer one, how to get it.
  std::string describeContext() const;
  /// Throws Error(InvalidToken) if the vocabulary lacks `id`.
  void requireToken(int32_t id) const;
  /// Throws Error unless there are 1 to `context` ids, all of the vocabulary.
  /// `what` names them, as "the prompt".
  void requirePrompt(std::span<const int32_t> ids,
                     const std::string &what) const;
};

/// The code for one target.
struct TargetInfo {
  std::string name;
  Arch arch;
  /// Features that a machine must have to run it.
  CpuFeatureSet features;
  std::vector<std::string> kernels;

  /// Whether a machine of `host` with these features can run it.
  bool runsOn(Arch host, CpuFeatureSet hostFeatures) const {
    return arch == host && hostFeatures.containsAll(features);
  }
};

/// The paged caches together.
struct KvInfo {
  int64_t pageBytes;
  int64_t tokenBytes;
};

/// The most that a call has of a count of its program.
struct CountLimit {
  std::string name;
  int64_t most;
};

/// Maximum numbers of tokens and rows (wanted tokens) in one call, and of the
/// tokens that a sequence can step back without a snapshot of its fixed state.
struct LimitsInfo {
  int64_t tokens;
  /// 0 if the program has no wanted tokens.
  int64_t rows;
  int64_t stepBack = 0;
  /// The program's own counts, in the order of Context::counts.
  std::vector<CountLimit> counts = {};

  /// The most of the count with that index in Context::counts; 0 of one that
  /// the program lacks.
  int64_t most(int64_t count) const {
    if (count == kTokensOfCall)
      return tokens;
    if (count == kWantedTokens)
      return rows;
    const auto own = static_cast<size_t>(count - kFirstOwnCount);
    return count < kFirstOwnCount || own >= counts.size() ? 0
                                                          : counts[own].most;
  }
};

/// A function of graph ops over the weights of a model, compiled.
struct ProgramInfo {
  /// Its entry is "<name>.<target>".
  std::string name;
  ProgramModel model;
  LimitsInfo limits;
  /// Bytes of the arena that it uses.
  int64_t arenaBytes;
  /// The caches that it uses, with the layers that it uses. Their places are
  /// those among the caches of all programs (mergeCache).
  std::vector<CacheInfo> caches;
  std::vector<ProgramValue> inputs, outputs;
  /// Names of the ops, in the order of the flags of tokens.
  std::vector<std::string> ops;
  /// Bytes and multiplications of each op.
  std::vector<OpWork> work;
  /// For each target and each op, the indices of the op's kernels in the list
  /// of the target; a product has GEMV and GEMM kernels.
  std::vector<std::vector<std::vector<size_t>>> kernels;

  /// The value `name` of `inputs` or of `outputs`, or null.
  static const ProgramValue *find(const std::vector<ProgramValue> &values,
                                  std::string_view name) {
    for (const ProgramValue &value : values)
      if (value.name == name)
        return &value;
    return nullptr;
  }
  /// The logits, or null if the program has none.
  const ProgramValue *logits() const { return find(outputs, kLogitsName); }
};

/// A weight image beside the file's own, which its caller gives.
struct ImageInfo {
  std::string name;
  uint64_t bytes;
};

/// One part of the file's weight image.
struct TensorInfo {
  /// A weight in the part: its name in the checkpoint and its outputs.
  struct Segment {
    std::string name;
    int64_t outputs;
  };

  std::string name;
  std::vector<int64_t> shape;
  WeightFormat format;
  uint64_t offset;
  uint64_t bytes;
  std::vector<Segment> segments;
  /// Matrices of experts, each with its outputs of all segments, and the bytes
  /// from one to the next; 1 and 0 for other tensors.
  int64_t experts = 1;
  uint64_t stride = 0;
};

struct Manifest {
  std::string compiler;
  ModelInfo model;
  /// At least one target, all of one architecture, the best first.
  std::vector<TargetInfo> targets;
  KvInfo kv;
  /// At least one. The first is `forward`, which gives the model's results.
  std::vector<ProgramInfo> programs;
  /// The caches of all programs, in the order of Context::caches.
  std::vector<CacheInfo> caches;
  /// In the order of Context::images, behind the file's own.
  std::vector<ImageInfo> images;
  std::vector<TensorInfo> tensors;
  GenerationConfig generation;
  Quantization quantization;
  Pruning pruning;

  const ProgramInfo &forward() const { return programs.front(); }
  /// The draft head's, or null.
  const ProgramInfo *draftHead() const;
  /// Number of the logits of `program` that are of tokens. Those of padding
  /// come last.
  int64_t tokenLogits(const ProgramInfo &program) const {
    return program.model.tokens.empty() ? model.tokenizerVocab
                                        : std::ssize(program.model.tokens);
  }

  /// The formats of the matrices, joined: "q8_0+q4_0".
  std::string weightFormats() const;
  /// Bytes of the weights that a decoded token reads. The token reads its
  /// active experts only, no embedding that `lm_head` does not share, and
  /// nothing of a draft head.
  uint64_t tokenWeightBytes() const;
  /// Bytes of the weights that a draft head shares with no other program.
  uint64_t draftHeadBytes() const;
  Arch arch() const { return targets.front().arch; }
  /// The first target that `features` of `arch` can run, or null.
  const TargetInfo *bestTarget(Arch arch, CpuFeatureSet features) const;
};

/// Parses and checks a manifest. `file` names the artifact in errors, and
/// `weightBytes` is the size of its weight image. Throws Error, which names the
/// key, the found and the needed value.
Manifest parseManifest(std::string_view json, const std::string &file,
                       uint64_t weightBytes);

/// Parses the part of a manifest that is about code, as compileProgram gives
/// it: "targets", "kv", "images" and "programs". The caller adds what its
/// engine needs of "model". Throws Error.
Manifest parsePrograms(std::string_view json, const std::string &file);

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_MANIFEST_H
