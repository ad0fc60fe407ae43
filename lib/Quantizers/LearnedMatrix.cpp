//===- LearnedMatrix.cpp - Integers whose scales change -------------------===//

#include "qwen/Quantizers/LearnedMatrix.h"

#include "EightFloats.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/WeightParts.h"

#include <algorithm>
#include <cmath>

using namespace qwen;
using numerics::WeightBlock;

/// The blocks of output `output` of `source`, and their error.
static numerics::EncodeError blocksOf(const WeightSource &source,
                                      WeightFormat format, int64_t output,
                                      std::vector<WeightBlock> &blocks) {
  const int64_t k = source.shape().k();
  std::vector<uint8_t> panel(static_cast<size_t>(panelBytes(format, k)));
  blocks.resize(static_cast<size_t>(ceilDiv(k, weightBlock(format))));
  const numerics::EncodeError error =
      source.keep(format, output, 1, 0, panel.data());
  numerics::getOutput(format, panel.data(), k, 0, blocks.data());
  return error;
}

LearnedMatrix::LearnedMatrix(WeightSourcePtr from, WeightFormat format,
                             unsigned threads)
    : ComputedSource(std::move(from)), format(format), scales(scalesOf(format)),
      blockSize(weightBlock(format)),
      subSize(scales.hasSubBlocks() ? scales.subBlock : blockSize),
      blocks(ceilDiv(shape().k(), blockSize)),
      integers(static_cast<size_t>(shape().values())),
      subIntegers(scales.hasSubBlocks()
                      ? static_cast<size_t>(shape().outputs() * scales.numbers *
                                            ceilDiv(shape().k(), subSize))
                      : 0),
      own(static_cast<size_t>(numbers())), followed(own) {
  const int64_t k = shape().k(), subs = ceilDiv(k, subSize);
  parallelFor(
      static_cast<size_t>(shape().outputs()), threads, [&](size_t i, unsigned) {
        const auto output = static_cast<int64_t>(i);
        std::vector<WeightBlock> list;
        blocksOf(*source, format, output, list);
        for (int64_t j = 0; j < k; ++j)
          integers[static_cast<size_t>(output * k + j)] =
              static_cast<int8_t>(codingOf(format).integerOf(
                  list[static_cast<size_t>(j / blockSize)]
                      .codes[j % blockSize]));
        for (int64_t number = 0; number < scales.numbers; ++number) {
          const int64_t row = output * scales.numbers + number;
          for (int64_t j = 0; j < blocks; ++j) {
            const WeightBlock &block = list[static_cast<size_t>(j)];
            own[static_cast<size_t>(row * blocks + j)] =
                f16ToF32(number == 0 ? block.scale : block.minimum);
          }
          for (int64_t j = 0; scales.hasSubBlocks() && j < subs; ++j)
            subIntegers[static_cast<size_t>(row * subs + j)] =
                static_cast<int8_t>(scales.integerOf(
                    list[static_cast<size_t>(j * subSize / blockSize)]
                        .subIntegers[number]
                                    [j * subSize % blockSize / subSize]));
        }
      });
}

float LearnedMatrix::subInteger(int64_t output, int64_t number,
                                int64_t first) const {
  if (!scales.hasSubBlocks())
    return 1;
  const int64_t subs = ceilDiv(shape().k(), subSize);
  return subIntegers[static_cast<size_t>(
      (output * scales.numbers + number) * subs + first / subSize)];
}

std::vector<float> LearnedMatrix::units() const {
  // About the mean magnitude of integers from 0 on.
  const auto middle =
      static_cast<float>(1 << (codingOf(format).bits - 1)) - 0.5f;
  std::vector<float> result(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    const size_t place = i % static_cast<size_t>(outputNumbers());
    if (place < static_cast<size_t>(blocks))
      result[i] = std::fabs(own[i]);
    else
      result[i] =
          scales.hasZero
              ? middle
              : middle * std::fabs(own[i - static_cast<size_t>(blocks)]);
  }
  return result;
}

void LearnedMatrix::read(int64_t first, int64_t count, float *values) const {
  const int64_t k = shape().k();
  for (int64_t output = first; output < first + count; ++output, values += k) {
    const float *number = numbersOf(output);
    const int8_t *from = integers.data() + output * k;
    for (int64_t i = 0; i < k; i += subSize) {
      const int64_t block = i / blockSize, end = std::min(i + subSize, k);
      const float step = subInteger(output, 0, i) * number[block];
      const float other = scales.numbers == 2 ? subInteger(output, 1, i) *
                                                    number[blocks + block]
                                              : 0;
      const float zero = scales.hasZero ? other : 0;
      const float minimum = scales.hasMinimum() ? other : 0;
      for (int64_t j = i; j < end; ++j)
        values[j] = (static_cast<float>(from[j]) - zero) * step + minimum;
    }
  }
}

/// The sum of the lanes, in a fixed order.
static float sumOfLanes(Lanes x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

void LearnedMatrix::addGradient(int64_t output, const float *slope,
                                float *gradient) const {
  const int64_t k = shape().k();
  const float *number = numbersOf(output);
  const int8_t *from = integers.data() + output * k;
  for (int64_t i = 0; i < k; i += subSize) {
    const int64_t block = i / blockSize, end = std::min(i + subSize, k);
    Lanes products = {}, slopes = {};
    for (int64_t j = i; j < end; j += kLanes) {
      Lanes x;
      for (int64_t lane = 0; lane < kLanes; ++lane)
        x[lane] = from[j + lane];
      const Lanes y = load(slope + j);
      products = fma(x, y, products);
      slopes += y;
    }
    const float product = sumOfLanes(products);
    const float sub = subInteger(output, 0, i);
    if (scales.numbers == 1) {
      gradient[block] += sub * product;
      continue;
    }
    const float sum = sumOfLanes(slopes);
    float &other = gradient[blocks + block];
    if (scales.hasZero) {
      gradient[block] += sub * (product - number[blocks + block] * sum);
      other -= sub * number[block] * sum;
    } else {
      gradient[block] += sub * product;
      other += subInteger(output, 1, i) * sum;
    }
  }
}

std::shared_ptr<Owned> LearnedMatrix::withNumbers(Place place) const {
  auto result = std::make_shared<Owned>(*source, place, format);
  std::vector<WeightBlock> list;
  for (int64_t output = 0; output < shape().outputs(); ++output) {
    const numerics::EncodeError error = blocksOf(*source, format, output, list);
    const float *number = numbersOf(output);
    for (int64_t j = 0; j < blocks; ++j) {
      WeightBlock &block = list[static_cast<size_t>(j)];
      block.scale = f32ToF16(number[j]);
      if (scales.numbers == 2)
        block.minimum = f32ToF16(number[blocks + j]);
    }
    result->set(output, list, error);
  }
  return result;
}
