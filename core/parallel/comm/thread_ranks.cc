#include "core/parallel/comm/thread_ranks.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

using Bytes = absl::Span<const std::byte>;
using MutableBytes = absl::Span<std::byte>;

// What a rank brings to a meeting.
struct Posted {
  std::string call;
  std::vector<Bytes> send;
  std::vector<MutableBytes> receive;
};

// A group of ranks and the one meeting that is going on in it: all post, then all copy, then all
// leave.
struct Group {
  std::vector<std::int64_t> ranks;  // of the world, ascending
  std::vector<Posted> posted;       // by member
  std::size_t arrived = 0, copied = 0;
  std::uint64_t met = 0, left = 0;  // meetings in which all have arrived; that all have left
};

// Everything below is guarded by one mutex, except the copying between the two waits of Meet().
class World {
 public:
  explicit World(int ranks) : waits_(static_cast<std::size_t>(ranks)) {}

  Group* GroupOf(const std::vector<std::int64_t>& ranks) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Group>& group = groups_[ranks];
    if (group == nullptr) {
      group = std::make_unique<Group>();
      group->ranks = ranks;
      group->posted.resize(ranks.size());
    }
    return group.get();
  }

  absl::Status Meet(Group& group, std::size_t member, Posted posted) {
    std::unique_lock lock(mutex_);
    if (!failure_.ok()) return failure_;
    const std::uint64_t meeting = group.met + 1;
    group.posted[member] = std::move(posted);
    if (++group.arrived == group.ranks.size()) {
      if (absl::Status status = Check(group); !status.ok()) return SetFailure(std::move(status));
      group.met = meeting;
      for (const std::int64_t rank : group.ranks) waits_[static_cast<std::size_t>(rank)].clear();
      changed_.notify_all();
    } else {
      waits_[static_cast<std::size_t>(group.ranks[member])] =
          absl::StrCat(group.posted[member].call, " with ranks ", absl::StrJoin(group.ranks, ","));
      CheckProgress();
      changed_.wait(lock, [&] { return group.met >= meeting || !failure_.ok(); });
      if (group.met < meeting) return failure_;
    }

    lock.unlock();
    for (std::size_t other = 0; other < group.ranks.size(); ++other) {
      const Bytes from = group.posted[other].send[member];
      const MutableBytes to = group.posted[member].receive[other];
      if (!from.empty() && from.data() != to.data()) {
        std::memcpy(to.data(), from.data(), from.size());
      }
    }
    lock.lock();

    // Whatever fails meanwhile, others may still read this rank's memory.
    if (++group.copied == group.ranks.size()) {
      group.arrived = group.copied = 0;
      group.left = meeting;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return group.left >= meeting; });
    }
    return absl::OkStatus();
  }

  absl::Status Fail(std::int64_t rank, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    return SetFailure(
        absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message())));
  }

  // The rank's body has returned.
  void Finish(std::int64_t rank, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && failure_.ok()) {
      SetFailure(absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message())));
    }
    finished_.push_back(rank);
    CheckProgress();
  }

  absl::Status failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  absl::Status SetFailure(absl::Status status) {
    if (failure_.ok()) failure_ = std::move(status);
    changed_.notify_all();
    return failure_;
  }

  // All make the same call, and sizes agree pair by pair.
  static absl::Status Check(const Group& group) {
    for (std::size_t to = 0; to < group.ranks.size(); ++to) {
      if (group.posted[to].call != group.posted[0].call) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", group.ranks[to], " calls ", group.posted[to].call, " where rank ",
                         group.ranks[0], " calls ", group.posted[0].call));
      }
      for (std::size_t from = 0; from < group.ranks.size(); ++from) {
        const std::size_t sent = group.posted[from].send[to].size();
        const std::size_t expected = group.posted[to].receive[from].size();
        if (sent != expected) {
          return absl::FailedPreconditionError(
              absl::StrCat(group.posted[0].call, ": rank ", group.ranks[from], " sends ", sent,
                           " bytes to rank ", group.ranks[to], ", which expects ", expected));
        }
      }
    }
    return absl::OkStatus();
  }

  // Fails if every rank that has not returned waits for others to arrive: none will.
  void CheckProgress() {
    std::vector<std::string> waiting;
    for (std::size_t rank = 0; rank < waits_.size(); ++rank) {
      if (!waits_[rank].empty()) {
        waiting.push_back(absl::StrCat("rank ", rank, " waits in ", waits_[rank]));
      }
    }
    if (waiting.empty() || waiting.size() + finished_.size() < waits_.size()) return;
    if (!finished_.empty()) {
      waiting.push_back(absl::StrCat("finished: rank ", absl::StrJoin(finished_, ", ")));
    }
    SetFailure(absl::FailedPreconditionError(
        absl::StrCat("no rank can go on: ", absl::StrJoin(waiting, "; "))));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::vector<std::string> waits_;  // by rank: the call in which it waits for others to arrive
  std::vector<std::int64_t> finished_;
  std::map<std::vector<std::int64_t>, std::unique_ptr<Group>> groups_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(World& world, Group& group, std::size_t member)
      : world_(world), group_(group), member_(member) {}

  int rank() const override { return static_cast<int>(member_); }
  int size() const override { return static_cast<int>(group_.ranks.size()); }

  absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const std::int64_t> ranks) override {
    std::vector<std::int64_t> world_ranks;
    std::size_t member = ranks.size();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0 || ranks[i] >= size() || (i > 0 && ranks[i] <= ranks[i - 1])) break;
      if (ranks[i] == rank()) member = i;
      world_ranks.push_back(group_.ranks[static_cast<std::size_t>(ranks[i])]);
    }
    if (world_ranks.size() < ranks.size() || member == ranks.size()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("group of ranks ", absl::StrJoin(ranks, ","), " asked for by rank ", rank(),
                       " of ", size(), ": it must be ascending, in range, and hold the rank")));
    }
    return std::make_unique<ThreadCommunicator>(world_, *world_.GroupOf(world_ranks), member);
  }

  absl::Status Fail(absl::Status status) override {
    return world_.Fail(group_.ranks[member_], status);
  }

 protected:
  absl::Status Exchange(absl::string_view call, absl::Span<const Bytes> send,
                        absl::Span<const MutableBytes> receive) override {
    return world_.Meet(group_, member_,
                       {.call = std::string(call),
                        .send = std::vector<Bytes>(send.begin(), send.end()),
                        .receive = std::vector<MutableBytes>(receive.begin(), receive.end())});
  }

 private:
  World& world_;
  Group& group_;
  std::size_t member_;
};

}  // namespace

absl::Status RunThreadRanks(int ranks, absl::FunctionRef<absl::Status(Communicator&)> body) {
  HW_CHECK_GE(ranks, 1);
  World world(ranks);
  std::vector<std::int64_t> all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
  Group& group = *world.GroupOf(all);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(world, group, static_cast<std::size_t>(rank));
      world.Finish(rank, body(communicator));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return world.failure();
}

}  // namespace headwise
