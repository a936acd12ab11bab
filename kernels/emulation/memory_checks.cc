// What BlockRunner does at accesses to memory.
#include <bit>

#include "kernels/emulation/block_runner.h"

namespace headwise::emulation {

void BlockRunner::TouchGlobal(const void* p, int bytes, Use use, Site site) {
  CheckStack(site);
  if (preempt_below_ != 0) RunOthersByChance();
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(p);
  const char* const byte = static_cast<const char*>(p);
  if (use == Use::kAtomic && byte >= memory_.shared() && byte < memory_.shared() + kMostShared) {
    return;  // TouchShared saw it when its address was taken
  }
  Finding finding = Broken(Rule::kNone, site);
  finding.address = p;
  finding.bytes = bytes;
  finding.use = use;
  constexpr std::uintptr_t kFirstPage = 4096;
  if (address < kFirstPage) {
    finding.rule = Rule::kNull;
    Fail(finding);
  }
  if (address % static_cast<unsigned>(bytes) != 0) {
    finding.rule = Rule::kMisaligned;
    Fail(finding);
  }
  int region = -1;
  if (!regions_->empty()) {
    const void* key = std::bit_cast<const void*>(site);
    LastRegion& last = last_region_[reinterpret_cast<std::uintptr_t>(key) / sizeof(void*) % 64];
    if (last.site == key && (*regions_)[last.region].Allows(address, bytes, use)) {
      region = last.region;
    } else {
      region = regions_->Allowing(address, bytes, use);
      if (region < 0) {
        finding.rule = Rule::kNotAllowed;
        Fail(finding);
      }
      last = {key, region};
    }
  }
  if (options_->count_traffic) {
    traffic_.Add(static_cast<int>(current_ - threads_), region, address, bytes, use, site);
  }
}

SharedRange BlockRunner::StaticShared(const void* key, std::int64_t bytes) {
  const std::int64_t offset = shared_.Static(key, bytes);
  if (offset < 0) {
    Finding finding = Broken(Rule::kSharedTooLarge, Site::current());
    finding.value = shared_.dynamic_bytes() + shared_.static_bytes() + bytes;
    Fail(finding);
  }
  return {memory_.shared() + offset, bytes};
}

SharedRange BlockRunner::DynamicShared(std::int64_t byte_offset, int alignment, Site site) {
  const std::int64_t bytes = shared_.dynamic_bytes() - byte_offset;
  if (byte_offset < 0 || bytes < 0 || byte_offset % alignment != 0) {
    const bool aligned = byte_offset % alignment == 0;
    Finding finding = Broken(aligned ? Rule::kSharedBounds : Rule::kSharedMisaligned, site);
    finding.bytes = alignment;
    finding.offset = byte_offset;
    finding.value = shared_.dynamic_bytes();
    Fail(finding);
  }
  return {memory_.shared() + byte_offset, bytes};
}

void BlockRunner::TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use,
                              Site site) {
  CheckStack(site);
  if (preempt_below_ != 0) RunOthersByChance();
  const std::int64_t at = range.data - memory_.shared() + offset;
  Rule rule = Rule::kNone;
  if (offset < 0 || offset + bytes > range.bytes) {
    rule = Rule::kSharedBounds;
  } else if (at % bytes != 0) {
    rule = Rule::kSharedMisaligned;
  } else if (use == Use::kStore) {
    shared_.Write(at, bytes);
  } else if (!shared_.Written(at, bytes)) {
    rule = Rule::kSharedUnwritten;
  }
  if (rule != Rule::kNone) {
    Finding finding = Broken(rule, site);
    finding.use = use;
    finding.bytes = bytes;
    finding.offset = offset;
    finding.value = range.bytes;
    Fail(finding);
  }
}

}  // namespace headwise::emulation
