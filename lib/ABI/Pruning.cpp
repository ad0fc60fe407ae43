//===- Pruning.cpp - Layers that a model lost -----------------------------===//

#include "qwen/ABI/Pruning.h"

using namespace qwen;

std::string Pruning::describe() const {
  std::string list;
  for (int64_t layer : layers)
    list += (list.empty() ? "" : ", ") + std::to_string(layer);
  return "layers " + list + " removed (" + method + ")";
}
