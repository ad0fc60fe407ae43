//===- Fact.h - Rows of tables of facts -------------------------*- C++ -*-===//
//
// A table names each fact of a struct once: its key in files, its member and
// its range. Readers and writers are loops over the table.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_FACT_H
#define QWEN_SUPPORT_FACT_H

#include <cstdint>
#include <variant>

namespace qwen {

/// A fact of `Struct`.
template <typename Struct> struct Fact {
  const char *key;
  std::variant<int64_t Struct::*, double Struct::*, bool Struct::*> member;
  /// The range of a number, below 2^53.
  double least = 0, most = 0;
  /// Divides an integer.
  int64_t divisor = 1;

  /// Calls `visit` with the member of `object`.
  template <typename Object, typename Visit>
  void visitIn(Object &object, Visit visit) const {
    std::visit([&](const auto of) { visit(object.*of); }, member);
  }
};

} // namespace qwen

#endif // QWEN_SUPPORT_FACT_H
