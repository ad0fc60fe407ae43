//===- PanelProducts.h - Products of panels of 16 columns -------*- C++ -*-===//
//
// All products of quantizers and gradients are A^T B of panels: rows of 16
// values, which follow each other. An element of a product is a chain of fma
// from 0 in the order of rows, and then added, so that tiles and threads do not
// change it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_PANELPRODUCTS_H
#define QWEN_QUANTIZERS_PANELPRODUCTS_H

#include <cstdint>

namespace qwen {

/// Columns of a panel.
inline constexpr int64_t kPanel = 16;

/// c[16][16] += a^T b, of panels of `depth` rows; rows of c are `stride` apart.
void addPanels(const float *a, const float *b, int64_t depth, float *c,
               int64_t stride);

/// The lower triangle of c, a matrix of `panels` * 16 columns whose rows are
/// `stride` apart, += A^T B; the tiles on its diagonal are added whole. A and B
/// are `panels` panels of `depth` rows each; 256 rows at a time are a product,
/// because a longer chain would lose bits.
void addLowerTriangle(const float *a, const float *b, int64_t panels,
                      int64_t depth, float *c, int64_t stride,
                      unsigned threads);

/// panel[column][16] = the `columns` values of `rows` <= 16 rows that are
/// `stride` apart; 0 for other rows.
void transposeRows(const float *from, int64_t stride, int64_t rows,
                   int64_t columns, float *panel);

} // namespace qwen

#endif // QWEN_QUANTIZERS_PANELPRODUCTS_H
