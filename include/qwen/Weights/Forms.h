//===- Forms.h - The forms of weights in checkpoints ------------*- C++ -*-===//
//
// Forms.def has a row for each form. A file of lib/Weights reads it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_WEIGHTS_FORMS_H
#define QWEN_WEIGHTS_FORMS_H

#include "qwen/Weights/StoredTensor.h"
#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// The tensors of one weight, in the order of the suffixes of its form.
using WeightTensors = std::span<const StoredTensor *const>;

// make<Form>(tensors): the weight, or null if the tensors have another form.
#define QWEN_WEIGHT_FORM(Form, ...) WeightSourcePtr make##Form(WeightTensors);
#include "qwen/Weights/Forms.def"

/// Groups `tensors`, whose keys are names of the model, by module and asks the
/// forms in order. A form of several tensors gives the weight MODULE.weight,
/// one of a single tensor a weight with the tensor's name. `method` is the
/// quant_method of the checkpoint, or empty. Tensors of no form give nothing.
WeightSources
makeSources(const std::map<std::string, StoredTensor, std::less<>> &tensors,
            std::string_view method);

} // namespace qwen

#endif // QWEN_WEIGHTS_FORMS_H
