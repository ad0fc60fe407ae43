//===- Forms.h - The forms of weights in checkpoints ------------*- C++ -*-===//
//
// Forms.def has a row for each form. A file of lib/Weights reads it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_WEIGHTS_FORMS_H
#define QWEN_WEIGHTS_FORMS_H

#include "qwen/Support/JsonValue.h"
#include "qwen/Weights/StoredTensor.h"
#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// The tensors of one weight, in the order of the suffixes of its form. One is
/// null where its suffix is optional and the module lacks it.
using WeightTensors = std::span<const StoredTensor *const>;

/// How a checkpoint of one form holds its weights.
class WeightForm {
public:
  virtual ~WeightForm() = default;

  /// The weight that `tensors` hold, or null if they have another form. Throws
  /// Error where they contradict the configuration or each other.
  virtual WeightSourcePtr make(WeightTensors tensors) const = 0;
};

// make<Form>Form(config): the form in a checkpoint whose quantization
// configuration is `config`, an object. Throws Error, which names the key, for
// what is not supported. `config` need not live longer than the call.
#define QWEN_WEIGHT_FORM(Id, ...)                                              \
  std::unique_ptr<const WeightForm> make##Id##Form(const JsonValue &config);
#include "qwen/Weights/Forms.def"

/// The module that `tensor` belongs to, as configurations spell it: its name in
/// the file without its suffix.
std::string_view moduleOf(const StoredTensor &tensor);

/// Whether a row of Forms.def has this quant_method.
bool isFormMethod(std::string_view method);

/// The quant_methods of Forms.def, for errors: "awq, gptq and mlx".
std::string formMethodList();

using TensorsByName = std::map<std::string, StoredTensor, std::less<>>;

/// Groups `tensors`, whose keys are names of the model, by module and asks the
/// forms in order. A form of several tensors gives the weight MODULE.weight,
/// one of a single tensor a weight with the tensor's name. `config` is the
/// quantization configuration of the checkpoint, an object, and `method` its
/// quant_method, or empty. Tensors of no form give nothing. Throws Error for
/// integers without a tensor that their form needs, and for two tensors that
/// give the same weight.
WeightSources makeSources(const TensorsByName &tensors, const JsonValue &config,
                          std::string_view method);
/// The sources of a checkpoint without a configuration.
WeightSources makeSources(const TensorsByName &tensors);

} // namespace qwen

#endif // QWEN_WEIGHTS_FORMS_H
