#include "model/ops/fault.h"

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace headwise::ops {

const char* Name(Fault fault) {
  switch (fault) {
    case Fault::kToken:
      return "Embedding: token";
    case Fault::kTarget:
      return "CrossEntropy: target";
    case Fault::kPosition:
      return "PrepareQkv: position";
    case Fault::kSegment:
      return "Attention: segment";
    case Fault::kExpert:
      return "Route: expert of token";
  }
  HW_CHECK(false) << "not a Fault: " << static_cast<int>(fault);
}

absl::Status FaultStatus(absl::Span<const std::uint64_t> words) {
  HW_CHECK_EQ(words.size(), kFaults);
  for (int fault = 0; fault < kFaults; ++fault) {
    if (words[fault] == kNoFault) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Name(static_cast<Fault>(fault)), " ", words[fault], " is out of range"));
  }
  return absl::OkStatus();
}

}  // namespace headwise::ops
