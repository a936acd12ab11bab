// What BlockRunner does at accesses to memory.
#include <bit>

#include "kernels/emulation/block_runner.h"

namespace headwise::emulation {

void BlockRunner::TouchGlobal(const void* p, int bytes, Use use, Site site) {
  CheckStack(site);
  if (preempt_below_ != 0) RunOthersByChance();
  // TouchShared saw the atomic operation when its address was taken.
  if (use == Use::kAtomic && memory_->IsShared(p)) return;
  constexpr std::uintptr_t kFirstPage = 4096;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(p);
  if (address < kFirstPage) ReportGlobal(Rule::kNull, p, bytes, use, site);
  if ((address & static_cast<unsigned>(bytes - 1)) != 0) {
    ReportGlobal(Rule::kMisaligned, p, bytes, use, site);
  }
  int region = -1;
  if (has_regions_) {
    const void* const key = std::bit_cast<const void*>(site);
    LastRegion& last =
        last_region_[reinterpret_cast<std::uintptr_t>(key) / sizeof(void*) % kLastRegions];
    if (last.site == key && (*regions_)[last.region].Allows(address, bytes, use)) {
      region = last.region;
    } else {
      region = regions_->Allowing(address, bytes, use);
      if (region < 0) ReportGlobal(Rule::kNotAllowed, p, bytes, use, site);
      last = {key, region};
    }
  }
  if (options_->count_traffic) traffic_.Add(thread(), region, address, bytes, use, site);
}

SharedRange BlockRunner::StaticShared(const void* key, std::int64_t bytes, Site site) {
  const std::int64_t offset = shared_.Static(key, bytes);
  if (offset < 0) {
    Finding finding = Broken(Rule::kSharedTooLarge, site);
    finding.value = shared_.static_bytes() + bytes;
    finding.other_value = shared_.dynamic_bytes();
    Fail(finding);
  }
  return {memory_->shared() + offset, bytes};
}

SharedRange BlockRunner::DynamicShared(std::int64_t byte_offset, int alignment, Site site) {
  const SharedRange all = {memory_->shared(), shared_.dynamic_bytes()};
  if (byte_offset < 0 || byte_offset > all.bytes) {
    ReportShared(Rule::kSharedBounds, all, byte_offset, alignment, Use::kLoad, site);
  }
  if (byte_offset % alignment != 0) {
    ReportShared(Rule::kSharedMisaligned, all, byte_offset, alignment, Use::kLoad, site);
  }
  return {all.data + byte_offset, all.bytes - byte_offset};
}

void BlockRunner::TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use,
                              Site site) {
  CheckStack(site);
  if (preempt_below_ != 0) RunOthersByChance();
  const std::int64_t at = range.data - memory_->shared() + offset;
  if (offset < 0 || offset + bytes > range.bytes) {
    ReportShared(Rule::kSharedBounds, range, offset, bytes, use, site);
  }
  if ((at & (bytes - 1)) != 0) {
    ReportShared(Rule::kSharedMisaligned, range, offset, bytes, use, site);
  }
  if (use == Use::kStore) {
    shared_.Write(at, bytes);
  } else if (!shared_.Written(at, bytes)) {
    ReportShared(Rule::kSharedUnwritten, range, offset, bytes, use, site);
  }
}

void BlockRunner::ReportGlobal(Rule rule, const void* p, int bytes, Use use, Site site) {
  Finding finding = Broken(rule, site);
  finding.address = p;
  finding.bytes = bytes;
  finding.use = use;
  Fail(finding);
}

void BlockRunner::ReportShared(Rule rule, const SharedRange& range, std::int64_t offset, int bytes,
                               Use use, Site site) {
  Finding finding = Broken(rule, site);
  finding.use = use;
  finding.bytes = bytes;
  finding.offset = offset;
  finding.value = range.bytes;
  Fail(finding);
}

}  // namespace headwise::emulation
