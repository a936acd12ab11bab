#include "core/parallel/layout_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace headwise {
namespace {

constexpr char kOpUrl[] = "headwise/layout/op";
constexpr char kAxisUrl[] = "headwise/layout/axis";

std::string Payload(const absl::Status& status, absl::string_view url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status LayoutError(absl::string_view op, absl::string_view axis,
                         absl::Span<const Operand> operands, absl::string_view why) {
  std::string message(op);
  if (!axis.empty()) absl::StrAppend(&message, ": axis ", axis);
  if (!operands.empty()) {
    absl::StrAppend(&message, ": ",
                    absl::StrJoin(operands, " with ", [](std::string* out, const Operand& operand) {
                      absl::StrAppend(out, operand.name, " ", operand.type.ToString());
                    }));
  }
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(message, ": ", why));
  status.SetPayload(kOpUrl, absl::Cord(op));
  status.SetPayload(kAxisUrl, absl::Cord(axis));
  return status;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  absl::Status result(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

std::string OpOfError(const absl::Status& status) { return Payload(status, kOpUrl); }
std::string AxisOfError(const absl::Status& status) { return Payload(status, kAxisUrl); }

}  // namespace headwise
