#include "core/parallel/layout_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace headwise {
namespace {

constexpr char kOpUrl[] = "headwise/layout/op";
constexpr char kAxisUrl[] = "headwise/layout/axis";
constexpr char kOperandsUrl[] = "headwise/layout/operands";  // one a line
constexpr char kWhyUrl[] = "headwise/layout/why";

std::string Payload(const absl::Status& status, absl::string_view url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status LayoutError(absl::string_view op, absl::string_view axis,
                         absl::Span<const Operand> operands, absl::string_view why) {
  std::string message(op);
  if (!axis.empty()) absl::StrAppend(&message, ": axis ", axis);
  std::vector<std::string> named;
  for (const Operand& operand : operands) {
    named.push_back(absl::StrCat(operand.name, " ", operand.type.ToString()));
  }
  if (!named.empty()) absl::StrAppend(&message, ": ", absl::StrJoin(named, " with "));
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(message, ": ", why));
  status.SetPayload(kOpUrl, absl::Cord(op));
  status.SetPayload(kAxisUrl, absl::Cord(axis));
  status.SetPayload(kOperandsUrl, absl::Cord(absl::StrJoin(named, "\n")));
  status.SetPayload(kWhyUrl, absl::Cord(why));
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
std::string WhyOfError(const absl::Status& status) { return Payload(status, kWhyUrl); }

std::vector<std::string> OperandsOfError(const absl::Status& status) {
  return absl::StrSplit(Payload(status, kOperandsUrl), '\n', absl::SkipEmpty());
}

}  // namespace headwise
