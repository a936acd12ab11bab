// Tools for tests of durable writes: count the operations of a save, make the n-th one fail, or
// kill the process there.
//
//   const int operations = CountOperations([&](FileHook hook) { return Save(path, hook); });
//   for (int n = 0; n < operations; ++n) {
//     KilledAtOperation(n, [&](FileHook hook) { return Save(path, hook); });
//     ... the file at `path` is the old or the new one, whole ...
//   }
#ifndef HEADWISE_CORE_IO_TESTING_FAULT_INJECTION_H_
#define HEADWISE_CORE_IO_TESTING_FAULT_INJECTION_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/io/file_system.h"

namespace headwise {

using SaveFunction = std::function<absl::Status(FileHook hook)>;

// Runs `save`, which must succeed (checked), and returns "create", "write", ... in the order in
// which they happened.
std::vector<std::string> RecordOperations(const SaveFunction& save);

// How many there are.
int CountOperations(const SaveFunction& save);

// A hook that lets `n` operations happen, fails the next one with the errno value `error`, and lets
// the rest happen.
FileHook FailOperation(int n, int error);

// Runs `save` in a child process that SIGKILLs itself when operation `n` (from 0) is about to
// happen, and waits for it. Returns whether it was killed: false if the save has no operation `n`
// and ended on its own. The calling process must have no other threads.
bool KilledAtOperation(int n, const SaveFunction& save);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_TESTING_FAULT_INJECTION_H_
