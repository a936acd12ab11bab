#include "core/io/testing/fault_injection.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "core/base/check.h"

namespace headwise {

std::vector<std::string> RecordOperations(const SaveFunction& save) {
  std::vector<std::string> operations;
  const absl::Status status = save([&](FileOperation operation, const std::string&) {
    operations.push_back(Name(operation));
    return 0;
  });
  HW_CHECK(status.ok()) << status;
  return operations;
}

int CountOperations(const SaveFunction& save) {
  return static_cast<int>(RecordOperations(save).size());
}

FileHook FailOperation(int n, int error) {
  auto calls = std::make_shared<int>(0);
  return
      [calls, n, error](FileOperation, const std::string&) { return (*calls)++ == n ? error : 0; };
}

bool KilledAtOperation(int n, const SaveFunction& save) {
  const pid_t child = ::fork();
  HW_CHECK_GE(child, 0) << "fork";
  if (child == 0) {
    int calls = 0;
    const absl::Status status = save([&](FileOperation, const std::string&) {
      if (calls++ == n) std::raise(SIGKILL);
      return 0;
    });
    // No destructors, no flushing of the parent's buffers.
    ::_exit(status.ok() ? 0 : 1);
  }
  int status = 0;
  HW_CHECK_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) {
    HW_CHECK_EQ(WEXITSTATUS(status), 0) << "the save failed on its own";
    return false;
  }
  HW_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
  return true;
}

}  // namespace headwise
