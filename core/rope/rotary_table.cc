#include "core/rope/rotary_table.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/io/checksum.h"

namespace headwise {
namespace {

absl::Status CheckGeometry(std::int64_t length, std::int64_t rotary_dim) {
  if (length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary table length must not be negative, found ", length));
  }
  if (rotary_dim < 0 || rotary_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary_dim must be even and not negative, found ", rotary_dim,
                     "; elements are rotated in pairs"));
  }
  const std::int64_t pairs = rotary_dim / 2;
  if (pairs > 0 && length > RotaryTable::kMaxEntries / pairs) {
    return absl::InvalidArgumentError(absl::StrCat("rotary table of ", length, " positions x ",
                                                   pairs, " pairs exceeds ",
                                                   RotaryTable::kMaxEntries, " entries"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(RotaryPairing pairing) {
  switch (pairing) {
    case RotaryPairing::kHalf:
      return "half";
    case RotaryPairing::kInterleaved:
      return "interleaved";
  }
  return "?";
}

absl::StatusOr<RotaryTable> RotaryTable::Create(const Options& options) {
  HW_RETURN_IF_ERROR(CheckGeometry(options.length, options.rotary_dim));
  HW_ASSIGN_OR_RETURN(const RotaryFrequencies frequencies,
                      ScaledFrequencies(options.scaling, options.theta, options.rotary_dim));
  RotaryTable table;
  table.length_ = options.length;
  table.rotary_dim_ = options.rotary_dim;
  table.pairing_ = options.pairing;
  const std::int64_t pairs = options.rotary_dim / 2;
  const auto entries = static_cast<std::size_t>(options.length * pairs);
  table.cos_.reserve(entries);
  table.sin_.reserve(entries);

  for (std::int64_t position = 0; position < options.length; ++position) {
    for (const double frequency : frequencies.inv_freq) {
      const double angle = static_cast<double>(position) * frequency;
      const double factor = frequencies.attention_factor;
      table.cos_.push_back(static_cast<float>(std::cos(angle) * factor));
      table.sin_.push_back(static_cast<float>(std::sin(angle) * factor));
    }
  }
  return table;
}

absl::StatusOr<RotaryTable> RotaryTable::FromValues(std::int64_t length, std::int64_t rotary_dim,
                                                    RotaryPairing pairing, std::vector<float> cos,
                                                    std::vector<float> sin) {
  HW_RETURN_IF_ERROR(CheckGeometry(length, rotary_dim));
  const auto entries = static_cast<std::size_t>(length * (rotary_dim / 2));
  if (cos.size() != entries || sin.size() != entries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a rotary table of ", length, " positions and rotary_dim ", rotary_dim, " has ", entries,
        " values each of cos and sin, found ", cos.size(), " and ", sin.size()));
  }
  RotaryTable table;
  table.length_ = length;
  table.rotary_dim_ = rotary_dim;
  table.pairing_ = pairing;
  table.cos_ = std::move(cos);
  table.sin_ = std::move(sin);
  return table;
}

std::uint64_t RotaryTable::Hash() const {
  Fnv1a64 sum;
  sum.UpdateValue(length_);
  sum.UpdateValue(rotary_dim_);
  sum.UpdateValue(static_cast<std::int32_t>(pairing_));
  sum.Update(cos_.data(), cos_.size() * sizeof(float));
  sum.Update(sin_.data(), sin_.size() * sizeof(float));
  return sum.value();
}

}  // namespace headwise
