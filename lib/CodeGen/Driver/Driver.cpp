//===- Driver.cpp - The driver as one source ------------------------------===//
//
// The source of the driver's bitcode, so that it is one module.
//
//===----------------------------------------------------------------------===//

#include "Attention.cpp"
#include "Elementwise.cpp"
#include "Experts.cpp"
#include "LinearAttention.cpp"
#include "Products.cpp"
