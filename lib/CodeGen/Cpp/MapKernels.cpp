//===- MapKernels.cpp - Element-wise maps, part of CppKernels.cpp ---------===//

#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  void qwenCpp##Map(const float *x, int64_t n, float *y) {                     \
    for (int64_t i = 0; i < n; i += kVector) {                                 \
      const int64_t count = std::min(n - i, kVector);                          \
      storeSome(y + i, Name(loadSome(x + i, count)), count);                   \
    }                                                                          \
  }
#include "qwen/ABI/ElementMaps.def"
