#include "kernels/emulation/finding.h"

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "kernels/emulation/shared_state.h"

namespace headwise::emulation {
namespace {

std::string ToString(const Dim3& place) {
  return absl::StrFormat("(%u, %u, %u)", place.x, place.y, place.z);
}

std::string ToString(const Site& site) {
  std::string_view file = site.file_name();
  if (file.starts_with("./")) file.remove_prefix(2);  // found by -iquote .
  return absl::StrFormat("%s:%d", file, site.line());
}

std::string UseName(Use use) {
  return use == Use::kLoad ? "load" : use == Use::kStore ? "store" : "atomic operation";
}

std::string What(const Finding& f, const Regions& regions) {
  switch (f.rule) {
    case Rule::kNone:
      break;
    case Rule::kBarrierMissing:
      return absl::StrFormat(
          "barrier reached by part of the block: others have returned without it, %d so far",
          f.value);
    case Rule::kDifferentBarriers:
      return absl::StrFormat(
          "threads at different barriers: another thread of the block, %d, waits "
          "at %s",
          f.other_thread, ToString(f.other_site));
    case Rule::kMaskWithoutCaller:
      return absl::StrFormat("mask %#010x lacks the calling lane %d", f.mask, f.thread % 32);
    case Rule::kMaskAbsent:
      return absl::StrFormat("mask %#010x names lanes that the block lacks (%#010x)", f.mask,
                             f.other_mask);
    case Rule::kMaskExited:
      return absl::StrFormat("mask %#010x names lanes that have returned (%#010x)", f.mask,
                             f.other_mask);
    case Rule::kDifferentOperations:
      return absl::StrFormat(
          "lanes of a mask at different operations: lane %d with mask %#010x, lane %d at %s with "
          "mask %#010x",
          f.thread % 32, f.mask, f.other_thread % 32, ToString(f.other_site), f.other_mask);
    case Rule::kShuffleOutside:
      return absl::StrFormat("shuffle from lane %d outside the mask %#010x", f.value, f.mask);
    case Rule::kBadWidth:
      return absl::StrFormat("shuffle width %d is not a power of two up to 32", f.value);
    case Rule::kDeadlock:
      return absl::StrFormat(
          "deadlock: %d threads wait at a barrier, %d for lanes of their warp; this one waits",
          f.value, f.other_value);
    case Rule::kNotAllowed:
      return regions.Explain(reinterpret_cast<std::uintptr_t>(f.address), f.bytes, f.use);
    case Rule::kMisaligned:
      return absl::StrFormat("misaligned %s: %d bytes at %p", UseName(f.use), f.bytes, f.address);
    case Rule::kNull:
      return absl::StrFormat("null pointer: %s of %d bytes at %p", UseName(f.use), f.bytes,
                             f.address);
    case Rule::kSharedBounds:
      return absl::StrFormat("shared memory out of bounds: %s of %d bytes at byte %d of %d",
                             UseName(f.use), f.bytes, f.offset, f.value);
    case Rule::kSharedUnwritten:
      return absl::StrFormat("shared memory read but never written: %d bytes at byte %d of %d",
                             f.bytes, f.offset, f.value);
    case Rule::kSharedMisaligned:
      return absl::StrFormat("misaligned shared memory: %s of %d bytes at byte %d of %d",
                             UseName(f.use), f.bytes, f.offset, f.value);
    case Rule::kSharedTooLarge:
      return absl::StrFormat(
          "block has %d bytes of static and %d of dynamic shared memory; a GPU has %d, of them "
          "static "
          "at most %d",
          f.value, f.other_value, kMostShared, kMostSharedUnasked);
    case Rule::kStackOverflow:
      return absl::StrFormat("stack overflow: the emulation gives a thread %d bytes", f.value);
  }
  return "nothing";
}

}  // namespace

std::string Describe(const Finding& finding, const char* kernel, const Dim3& block,
                     const Dim3& block_extents, const Regions& regions) {
  return absl::StrFormat("%s: kernel %s, block %s, thread %s, %s", What(finding, regions), kernel,
                         ToString(block), ToString(PlaceAt(finding.thread, block_extents)),
                         ToString(finding.site));
}

}  // namespace headwise::emulation
