// The makers of test checkpoints, by kind of architecture; checkpoints.cc lists them.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_TESTING_FAMILIES_H_
#define HEADWISE_OPTIM_ARCHITECTURES_TESTING_FAMILIES_H_

#include <vector>

#include "optim/architectures/testing/checkpoints.h"

namespace headwise {

std::vector<TestFamily> SeparateTestFamilies();
std::vector<TestFamily> FusedTestFamilies();
std::vector<TestFamily> HybridTestFamilies();
std::vector<TestFamily> MultimodalTestFamilies();
std::vector<TestFamily> KinTestFamilies();
std::vector<TestFamily> MultimodalKinTestFamilies();

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_TESTING_FAMILIES_H_
