#include "optim/architectures/decline_reason.h"

namespace headwise {

const char* Name(DeclineReason reason) {
  switch (reason) {
    case DeclineReason::kNotAttention:
      return "not_attention";
    case DeclineReason::kNotTwoDimensional:
      return "not_two_dimensional";
    case DeclineReason::kTransposedStorage:
      return "transposed_storage";
    case DeclineReason::kWidthMismatch:
      return "width_mismatch";
    case DeclineReason::kNoGeometry:
      return "no_geometry";
    case DeclineReason::kAmbiguous:
      return "ambiguous";
    case DeclineReason::kUnknownArchitecture:
      return "unknown_architecture";
    case DeclineReason::kOwnerGeometryUnknown:
      return "owner_geometry_unknown";
    case DeclineReason::kLowRankDown:
      return "low_rank_down";
  }
  return "?";
}

}  // namespace headwise
