//===- RootTable.h - The roots of prompts -----------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_ROOTTABLE_H
#define QWEN_RUNTIME_ENGINE_ROOTTABLE_H

#include "engine/Prompt.h"

namespace qwen {

/// Finds equal roots, which it compares in full. All requests of a scheduler
/// need the same table. It forgets a root with the last request, page and
/// snapshot that has it. All threads may call all functions, and end a RootRef
/// at any time, also when the table is gone.
class RootTable {
public:
  RootTable();

  /// The root of the table that is equal to `root`.
  RootRef intern(Root root);
  /// Number of roots.
  size_t size() const;

private:
  struct Roots;
  /// Those outside hold one.
  struct Hold;

  std::shared_ptr<Roots> roots;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ROOTTABLE_H
