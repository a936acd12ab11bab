// Leaves and outcomes in one line, for tests of layouts.
#ifndef HEADWISE_CORE_PARALLEL_TESTING_DECLARE_H_
#define HEADWISE_CORE_PARALLEL_TESTING_DECLARE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/parallel/layout_type.h"

namespace headwise::testing {

// A leaf on Mesh::Parse(mesh); aborts with the error if there is one.
LayoutType Leaf(const char* mesh, const std::vector<Dim>& shape, const char* spec,
                DType dtype = DType::kF32);
LayoutType Leaf(const Mesh& mesh, const std::vector<Dim>& shape, const char* spec,
                DType dtype = DType::kF32);

// The type as text, or the error's message.
std::string Outcome(const absl::StatusOr<LayoutType>& type);
std::string Outcome(const absl::Status& status);

}  // namespace headwise::testing

#endif  // HEADWISE_CORE_PARALLEL_TESTING_DECLARE_H_
