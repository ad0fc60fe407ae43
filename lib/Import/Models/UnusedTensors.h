//===- UnusedTensors.h - Tensors that a model does not use ------*- C++ -*-===//

#ifndef QWEN_LIB_IMPORT_MODELS_UNUSEDTENSORS_H
#define QWEN_LIB_IMPORT_MODELS_UNUSEDTENSORS_H

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include "qwen/Support/Pattern.h"

#include <map>
#include <string>
#include <vector>

namespace qwen {

/// Sorts the tensors of a checkpoint that the model does not use: each is
/// known, ignored by an option, or an error.
class UnusedTensors {
public:
  using ByKind = std::map<std::string, std::vector<std::string>, std::less<>>;

  /// The tensors of `checkpoint`. The regular expressions `ignored` of the
  /// option name some of them. Throws Error for another text.
  UnusedTensors(const Checkpoint &checkpoint,
                const std::vector<std::string> &ignored);

  /// Adds the tensor that the model calls `name`.
  void add(const std::string &name, const StoredTensor &tensor);

  /// The names by kind. Throws Error if there is a tensor of no kind, or if an
  /// expression matched none.
  ByKind finish();

private:
  struct Rule {
    Pattern names;
    std::string text;
    bool isUsed = false;
  };

  /// Whether a rule matches the name of `tensor`. Marks all that do.
  bool isIgnored(const StoredTensor &tensor);

  const Checkpoint &checkpoint;
  std::vector<Rule> rules;
  ByKind byKind;
  /// By their names in the file.
  std::map<std::string, const StoredTensor *, std::less<>> unknown;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_MODELS_UNUSEDTENSORS_H
