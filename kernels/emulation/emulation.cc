#include "kernels/emulation/emulation.h"

#include <utility>

#include "core/base/check.h"
#include "kernels/emulation/session_state.h"

namespace headwise::emulation {
namespace {

thread_local SessionState* current = nullptr;

}  // namespace

SessionState* CurrentSession() { return current; }

Session::Session(const Options& options) : state_(std::make_unique<SessionState>()) {
  HW_CHECK_GE(options.os_threads, 1);
  HW_CHECK(options.preempt >= 0 && options.preempt <= 1) << "preempt: " << options.preempt;
  HW_CHECK(options.preempt == 0 || options.order == ThreadOrder::kRandom)
      << "only ThreadOrder::kRandom preempts";
  state_->options = options;
  state_->outer = std::exchange(current, state_.get());
}

Session::~Session() {
  HW_CHECK(current == state_.get()) << "sessions end in reverse order, on the thread they began on";
  current = state_->outer;
}

void Session::AddRegion(std::string name, const void* data, std::int64_t bytes, Access access) {
  AddStridedRegion(std::move(name), data, 1, bytes, bytes, access);
}

void Session::AddStridedRegion(std::string name, const void* data, std::int64_t rows,
                               std::int64_t width, std::int64_t stride, Access access) {
  state_->regions.Add(std::move(name), data, rows, width, stride, access);
  state_->traffic.emplace_back();
}

const Traffic& Session::traffic(const std::string& name) const {
  const int region = state_->regions.Find(name);
  HW_CHECK_GE(region, 0) << "no region is called " << name;
  return state_->traffic[region];
}

const std::vector<Launch>& Session::launches() const { return state_->launches; }

absl::Status Session::status() const {
  return state_->finding.empty() ? absl::OkStatus() : absl::InternalError(state_->finding);
}

}  // namespace headwise::emulation
