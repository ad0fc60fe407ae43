/*===- qwenrt_weights.h - The formats of weights ------------------*- C -*-===*\
|*
|* A part of qwenrt.h, which includes it.
|*
|* Rounds weights as the compiler does without a calibration, to the same bits.
|* Needs no model. Any number of threads may call these functions.
|*
\*===----------------------------------------------------------------------===*/

#ifndef QWENRT_WEIGHTS_H
#define QWENRT_WEIGHTS_H

/* A format of weights (docs/quantization.md), and which parts it has. */
typedef struct qwen_weight_format {
  uint32_t size;
  /* Bits of the code of a weight. */
  int32_t bits;
  /* The name in options of qwen-opt, such as "q4_0". */
  const char *name;
  /* Not 0: weights are floats, which have no part but `values`. */
  int32_t is_float;
  /* Weights along a row that share a scale, and those that share a sub-scale.
     The last ones of a row may be fewer. 0: there are none. */
  int32_t block;
  int32_t sub_block;
  /* Not 0: a block has a minimum; a zero point; and its sub-blocks have
     sub-minimums. */
  int32_t has_minimums;
  int32_t has_zero_points;
  int32_t has_sub_minimums;
} qwen_weight_format;

/* Where the parts of rows of weights are written. NULL: a part is not wanted. A
   part that the format lacks must be NULL. With the sub-scale 1 where there is
   none, and 0 for a minimum that there is not, the value of a weight is
     integer * (sub_scale * scale) + sub_minimum * minimum, or
     (integer - zero_point) * scale. */
typedef struct qwen_weight_parts {
  uint32_t size;
  /* For each weight [rows][columns]: the stored bits, the integer that they
     stand for, and the value that a model computes with. */
  uint8_t *codes;
  int8_t *integers;
  float *values;
  /* For each block [rows][columns / block, rounded up]. */
  float *scales;
  float *minimums;
  float *zero_points;
  /* For each sub-block [rows][columns / sub_block, rounded up]. */
  int8_t *sub_scales;
  int8_t *sub_minimums;
} qwen_weight_parts;

/* Describes the format with this index, from 0. Returns 1, 0 if there are no
   more, or a negative number. */
int32_t qwen_weight_format_at(size_t index, qwen_weight_format *format);

/* Rounds `rows` rows of `columns` weights, one after another, to the format
   with this name. `columns` is a multiple of 32. Returns 0, or a negative
   number if a weight is not finite or a scale overflows; the parts are
   unspecified then. */
int32_t qwen_quantize_rows(const char *format, const float *weights,
                           int64_t rows, int64_t columns,
                           const qwen_weight_parts *parts);

#endif /* QWENRT_WEIGHTS_H */
