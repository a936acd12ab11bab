// FieldChecks: keeps the first problem found in a ModelConfig. Internal to model/config.
//
//   FieldChecks checks;
//   checks.Dimension("dim", config.dim());
//   checks.NotNegative("logit_cap", config.logit_cap());
//   return checks.status();  // "model.dim: -3 is out of range; it must be from 1 to 2147483648"
#ifndef HEADWISE_MODEL_FIELD_CHECKS_H_
#define HEADWISE_MODEL_FIELD_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/proto/config.pb.h"

namespace headwise {

class FieldChecks {
 public:
  // The field's path within model, and what is wrong with it.
  void Fail(const std::string& field, const std::string& problem);
  // From 1 to 2^31: beyond, a product of dimensions could leave 64 bits.
  void Dimension(const std::string& field, std::int64_t value);
  // Finite in single precision, and 0 there only if it is 0.
  void NotNegative(const std::string& field, double value);
  void Positive(const std::string& field, double value);
  void Finite(const std::string& field, double value);
  void Norm(const std::string& field, const NormConfig& norm);

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_FIELD_CHECKS_H_
