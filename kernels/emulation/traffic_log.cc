#include "kernels/emulation/traffic_log.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {
namespace {

constexpr std::uintptr_t kSector = 32;

void NoteWidth(int bytes, Traffic& t) {
  t.narrowest = t.narrowest == 0 ? bytes : std::min(t.narrowest, bytes);
  t.widest = std::max(t.widest, bytes);
}

}  // namespace

void TrafficLog::StartLaunch(int regions, int threads) {
  traffic_.assign(regions, {});
  visits_.resize(threads);
  for (auto& visits : visits_) visits.clear();
  entries_.clear();
}

void TrafficLog::Add(int thread, int region, std::uintptr_t address, int bytes, Use use,
                     const Site& site) {
  const TsanIgnore ignore;  // vectors grow by code that TSan sees
  const void* key = std::bit_cast<const void*>(site);
  std::vector<Visits>& visits = visits_[thread];
  auto visit =
      std::find_if(visits.begin(), visits.end(), [&](const Visits& v) { return v.site == key; });
  if (visit == visits.end()) visit = visits.insert(visit, {key, 0});
  entries_.push_back({.warp = thread / 32,
                      .site = key,
                      .round = visit->count++,
                      .region = region,
                      .address = address,
                      .bytes = bytes,
                      .use = use});
}

void TrafficLog::Fold() {
  const TsanIgnore ignore;
  const auto request = [](const Entry& e) { return std::tie(e.warp, e.site, e.round, e.region); };
  std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    return std::tuple_cat(request(a), std::tie(a.address)) <
           std::tuple_cat(request(b), std::tie(b.address));
  });
  const Entry* const end = entries_.data() + entries_.size();
  for (const Entry* begin = entries_.data(); begin != end;) {
    const Entry* next =
        std::find_if(begin, end, [&](const Entry& e) { return request(e) != request(*begin); });
    if (begin->region >= 0) FoldRequest(begin, next);
    begin = next;
  }
  entries_.clear();
  for (auto& visits : visits_) visits.clear();
}

// Entries ascend by address.
void TrafficLog::FoldRequest(const Entry* begin, const Entry* end) {
  Traffic& t = traffic_[begin->region];
  ++t.requests;
  std::uintptr_t sector = 0;
  std::uint32_t used = 0;  // its bytes
  const auto close = [&] {
    if (used != 0) ++t.sectors;
    if (used != 0 && ~used != 0) ++t.partly_used_sectors;
    used = 0;
  };
  for (const Entry* e = begin; e != end; ++e) {
    (e->use == Use::kLoad ? t.loads : e->use == Use::kStore ? t.stores : t.atomics) += e->bytes;
    NoteWidth(e->bytes, t);
    // An access is aligned and at most 16 bytes: it lies in one sector.
    if (e->address / kSector != sector) close();
    sector = e->address / kSector;
    used |= ((std::uint32_t{1} << e->bytes) - 1) << (e->address % kSector);
  }
  close();
}

void Accumulate(const Traffic& part, Traffic& total) {
  total.loads += part.loads;
  total.stores += part.stores;
  total.atomics += part.atomics;
  total.requests += part.requests;
  total.sectors += part.sectors;
  total.partly_used_sectors += part.partly_used_sectors;
  if (part.narrowest != 0) NoteWidth(part.narrowest, total);
  if (part.widest != 0) NoteWidth(part.widest, total);
}

}  // namespace headwise::emulation
