#include "model/field_checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace headwise {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;

}  // namespace

void FieldChecks::Fail(const std::string& field, const std::string& problem) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat("model.", field, ": ", problem));
}

void FieldChecks::Dimension(const std::string& field, std::int64_t value) {
  if (value < 1 || value > kMaxDimension) {
    Fail(field, absl::StrCat(value, " is out of range; it must be from 1 to ", kMaxDimension));
  }
}

void FieldChecks::NotNegative(const std::string& field, double value) {
  if (!(value >= 0) || !std::isfinite(static_cast<float>(value))) {
    Fail(field, absl::StrCat(value, " must be a finite number >= 0"));
  } else if (value > 0 && static_cast<float>(value) == 0) {
    Fail(field, absl::StrCat(value, " is nothing in single precision; it must be 0, or larger"));
  }
}

void FieldChecks::Positive(const std::string& field, double value) {
  if (!(value > 0) || std::isinf(value)) {
    Fail(field, absl::StrCat(value, " must be a finite number > 0"));
  }
}

void FieldChecks::Finite(const std::string& field, double value) {
  if (!std::isfinite(value)) Fail(field, absl::StrCat(value, " must be finite"));
}

void FieldChecks::Norm(const std::string& field, const NormConfig& norm) {
  if (!NormStyle_IsValid(norm.style())) {
    Fail(absl::StrCat(field, ".style"), absl::StrCat(norm.style(), " is not a NormStyle"));
  }
  if (norm.style() == NORM_ABSENT) return;
  // The kernels take it in single precision, where a smaller one would be nothing.
  if (!(static_cast<float>(norm.epsilon()) > 0) || !(norm.epsilon() < 1)) {
    Fail(absl::StrCat(field, ".epsilon"),
         absl::StrCat(norm.epsilon(), " must be > 0 and < 1, e.g. 1e-5"));
  }
  Finite(absl::StrCat(field, ".centre"), norm.centre());
  Finite(absl::StrCat(field, ".initial_weight"), norm.initial_weight());
}

}  // namespace headwise
