// The problems that every fast implementation of prepare_qkv is compared with the reference on.
// Fixed lists: the same on every machine.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_TEST_SHAPES_H_
#define HEADWISE_KERNELS_PREPARE_QKV_TEST_SHAPES_H_

#include <vector>

#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {

// The choices of an op, all combinations, at head_dim 64, 128 and 22.
std::vector<Shape> ShapesOfEveryChoice();

// The values, with all arithmetic choices.
std::vector<Shape> ShapesOfEveryKindOfValue();

// Every even head_dim; the other choices take turns.
std::vector<Shape> ShapesOfEveryHeadDim();

// Token counts around the tiles of the weight gradients, against numbers of heads that leave fours
// and powers of two incomplete.
std::vector<Shape> ShapesOfEveryTokenCountAndGroupSize();

// R from 0 to D, by steps that fit no vector, and by whole vectors.
std::vector<Shape> ShapesOfPartialRotary();

// Gaps between rows, any alignment, and v left in place.
std::vector<Shape> ShapesOfStridedRows();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_TEST_SHAPES_H_
