#include "kernels/emulation/region.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/check.h"

namespace headwise::emulation {
namespace {

// "12 bytes before q (4096 bytes)", for an address outside.
std::string Distance(const Region& region, std::int64_t offset) {
  const std::string size = region.width == region.stride
                               ? absl::StrFormat("%d bytes", region.extent)
                               : absl::StrFormat("%d rows of %d bytes, %d apart", region.rows,
                                                 region.width, region.stride);
  if (offset < 0) return absl::StrFormat("%d bytes before %s (%s)", -offset, region.name, size);
  if (region.width != region.stride && offset < region.extent) {
    return absl::StrFormat("byte %d of row %d of %s (%s)", offset % region.stride,
                           offset / region.stride, region.name, size);
  }
  return absl::StrFormat("byte %d of %s (%s)", offset, region.name, size);
}

}  // namespace

void Regions::Add(std::string name, const void* data, std::int64_t rows, std::int64_t width,
                  std::int64_t stride, Access access) {
  HW_CHECK_EQ(Find(name), -1) << "region " << name << " exists";
  HW_CHECK_GE(rows, 0) << "region " << name;
  HW_CHECK_GE(width, 0) << "region " << name;
  HW_CHECK(rows <= 1 || stride >= width) << "region " << name << ": rows overlap";
  const bool contiguous = rows <= 1 || stride == width;
  const std::int64_t extent = rows == 0 || width == 0 ? 0 : (rows - 1) * stride + width;
  regions_.push_back({.name = std::move(name),
                      .data = reinterpret_cast<std::uintptr_t>(data),
                      .rows = rows,
                      .width = contiguous ? extent : width,
                      .stride = contiguous ? extent : stride,
                      .extent = extent,
                      .writable = access == Access::kReadWrite});
}

int Regions::Find(const std::string& name) const {
  for (int i = 0; i < size(); ++i) {
    if (regions_[i].name == name) return i;
  }
  return -1;
}

int Regions::Allowing(std::uintptr_t address, std::int64_t bytes, Use use) const {
  for (int i = 0; i < size(); ++i) {
    if (regions_[i].Allows(address, bytes, use)) return i;
  }
  return -1;
}

std::string Regions::Explain(std::uintptr_t address, std::int64_t bytes, Use use) const {
  const Region* nearest = nullptr;
  std::int64_t nearest_distance = 0;
  for (const Region& region : regions_) {
    const std::int64_t offset = static_cast<std::int64_t>(address - region.data);
    if (use != Use::kLoad && region.Contains(address, bytes)) {
      return absl::StrFormat("write to read-only region: %d bytes at %s", bytes,
                             Distance(region, offset));
    }
    const std::int64_t distance = offset < 0                ? -offset
                                  : offset >= region.extent ? offset - region.extent + 1
                                                            : 0;
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &region;
      nearest_distance = distance;
    }
  }
  return absl::StrFormat("%s out of bounds: %d bytes at %s",
                         use == Use::kLoad    ? "load"
                         : use == Use::kStore ? "store"
                                              : "atomic operation",
                         bytes,
                         Distance(*nearest, static_cast<std::int64_t>(address - nearest->data)));
}

}  // namespace headwise::emulation
