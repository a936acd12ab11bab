#include "core/parallel/testing/declare.h"

#include "core/base/check.h"

namespace headwise::testing {

LayoutType Leaf(const Mesh& mesh, const std::vector<Dim>& shape, const char* spec, DType dtype) {
  const auto parsed = LayoutSpec::Parse(spec);
  HW_CHECK(parsed.ok()) << parsed.status();
  const auto type = LayoutType::Declare(mesh, shape, dtype, *parsed);
  HW_CHECK(type.ok()) << type.status();
  return *type;
}

LayoutType Leaf(const char* mesh, const std::vector<Dim>& shape, const char* spec, DType dtype) {
  const auto parsed = Mesh::Parse(mesh);
  HW_CHECK(parsed.ok()) << parsed.status();
  return Leaf(*parsed, shape, spec, dtype);
}

std::string Outcome(const absl::StatusOr<LayoutType>& type) {
  return type.ok() ? type->ToString() : std::string(type.status().message());
}

std::string Outcome(const absl::Status& status) { return std::string(status.message()); }

}  // namespace headwise::testing
