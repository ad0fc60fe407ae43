/*===- OtherLibrary.c - A function of another version of libqwenrt -*- C
-*-===*\
|*
|* TwoLibrariesTest loads it first, for all libraries that come later to see.
|*
\*===----------------------------------------------------------------------===*/

#include <stdint.h>

int32_t qwen_vocab_size(const void *model);

int32_t qwen_vocab_size(const void *model) {
  (void)model;
  return 1;
}
