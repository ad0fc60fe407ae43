//===- Unpack.cpp - Codes to the bytes that dots take ---------------------===//

#include "Unpack.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace qwen;
using namespace mlir;

/// The low nibbles of bytes, or the high ones.
static Value nibbles(ProductBuilder &b, Value codes, int64_t part) {
  if (part == 0)
    return arith::AndIOp::create(b, codes, b.constant(codes.getType(), 15));
  return arith::ShRUIOp::create(b, codes, b.constant(codes.getType(), 4));
}

namespace {
struct Signed8 final : Unpack {
  explicit Signed8(bool isUnsigned)
      : Unpack(1, isUnsigned ? ByteRange{1, 128, 0, 255}
                             : ByteRange{1, 0, -128, 127}) {}

  Value bytes(ProductBuilder &b, ArrayRef<Value> codes, int64_t,
              int64_t) const override {
    if (range.bias == 0)
      return codes[0];
    // w + 128 is w with its sign bit flipped.
    return arith::XOrIOp::create(b, codes[0],
                                 b.constant(codes[0].getType(), -128));
  }
};

/// Codes of 4 to 6 bits that are their value plus a bias.
struct Offset final : Unpack {
  Offset(const CodingInfo &coding, ByteForm form)
      : Unpack(2, rangeOf(coding, form), coding.bits - 4), bias(coding.bias) {}

  static ByteRange rangeOf(const CodingInfo &coding, ByteForm form) {
    const int64_t bias = coding.bias, most = (1 << coding.bits) - 1;
    if (bias == 0 || form == ByteForm::Biased)
      return {1, bias, 0, most};
    if (coding.bits == 4 && form == ByteForm::Scaled)
      return {16, 0, -128, 112};
    return {1, 0, -bias, most - bias};
  }

  Value bytes(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
              int64_t part) const override {
    auto constant = [&](int64_t value) {
      return b.constant(codes[0].getType(), value);
    };
    if (range.factor == 16) {
      // With the highest bit flipped, nibbles are their values in two's
      // complement, which are 16 times as much in the upper half of a byte.
      Value w = arith::XOrIOp::create(b, codes[0], constant(int8_t(0x88)));
      if (part == 0)
        return arith::ShLIOp::create(b, w, constant(4));
      return arith::AndIOp::create(b, w, constant(int8_t(0xF0)));
    }
    Value value = upperChunks == 0 ? nibbles(b, codes[0], part)
                  : !b.isArm()     ? withUpperBits(b, codes, chunk, part)
                  : part == 0 ? b.shiftedInto(codes[loadsTwice(b) ? 2 : 0],
                                              codes[1], 4, true)
                              : b.shiftedInto(codes[1], codes[0], 4, false);
    if (range.bias == bias)
      return value;
    return arith::SubIOp::create(b, value, constant(bias));
  }

  /// On x86, which has no shifts of bytes.
  Value withUpperBits(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
                      int64_t part) const {
    return arith::OrIOp::create(
        b, nibbles(b, codes[0], part),
        upperBits(b, codes[1], chunk / 2 * 2 + 4 * part));
  }

  /// The bits of `codes` from bit `from` on, at bit 4.
  Value upperBits(ProductBuilder &b, Value codes, int64_t from) const {
    auto constant = [&](int64_t value) {
      return b.constant(codes.getType(), value);
    };
    if (from < 4)
      codes = arith::ShLIOp::create(b, codes, constant(4 - from));
    if (from > 4)
      codes = arith::ShRUIOp::create(b, codes, constant(from - 4));
    return arith::AndIOp::create(b, codes,
                                 constant(((1 << upperChunks) - 1) << 4));
  }

  const int64_t bias;
};

/// Nibbles are places in a codebook.
struct Nonlinear4 final : Unpack {
  Nonlinear4(ArrayRef<int8_t> codebook, bool isUnsigned)
      : Unpack(2, isUnsigned
                      ? ByteRange{1, 128, codebook.front() + 128,
                                  codebook.back() + 128}
                      : ByteRange{1, 0, codebook.front(), codebook.back()}) {
    for (int8_t value : codebook)
      table.push_back(int8_t(value + range.bias));
  }

  Value bytes(ProductBuilder &b, ArrayRef<Value> codes, int64_t,
              int64_t part) const override {
    return b.lookUp(table, nibbles(b, codes[0], part));
  }

  SmallVector<int8_t> table;
};
} // namespace

Values Unpack::codes(ProductBuilder &b, int64_t chunk,
                     function_ref<Value(int64_t, bool)> load) const {
  Values codes = {load(chunk, false)};
  if (upperChunks == 0)
    return codes;
  Value upper = load(chunks() + chunk % upperChunks, false);
  auto constant = [&](int64_t value) {
    return b.constant(upper.getType(), value);
  };
  if (b.isArm()) {
    // Those of the chunk alone, from the lowest bit of each nibble on.
    if (const int64_t from = chunk / upperChunks * upperChunks)
      upper = arith::ShRUIOp::create(b, upper, constant(from));
    const int64_t mask = int64_t{0x11} * ((1 << upperChunks) - 1);
    upper = arith::AndIOp::create(b, upper, constant(mask));
  } else if (upperChunks == 1 && chunk % 2 != 0) {
    // Bits of chunks 2i and 2i + 1 have the same place in two chunks, or are
    // neighbours in one.
    upper = arith::ShRUIOp::create(b, upper, constant(1));
  }
  codes.push_back(upper);
  if (loadsTwice(b))
    codes.push_back(load(chunk, true));
  return codes;
}

std::unique_ptr<Unpack> qwen::makeUnpack(WeightFormat format, ByteForm form,
                                         const DotInfo &dot) {
  // The corrections of a bias would need the sums of more activations.
  if (scalesOf(format).hasSubBlocks() && !dot.isUnsigned)
    form = form == ByteForm::Biased ? ByteForm::Exact : form;
  const bool isUnsigned = form == ByteForm::Biased && dot.isUnsigned;
  switch (infoOf(format).coding) {
  case Coding::Signed8:
    return std::make_unique<Signed8>(isUnsigned);
  case Coding::Offset4:
  case Coding::Unsigned4:
  case Coding::Unsigned5:
  case Coding::Offset5:
  case Coding::Offset6:
    return std::make_unique<Offset>(codingOf(format), form);
  case Coding::Nonlinear4:
    return std::make_unique<Nonlinear4>(codingOf(format).codebook, isUnsigned);
  case Coding::Float32:
  case Coding::BFloat16:
    break;
  }
  return nullptr;
}
