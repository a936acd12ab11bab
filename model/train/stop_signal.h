// StopSignal: SIGINT and SIGTERM as a request to stop after the current step. A second one ends the
// process at once. SIGPIPE (whoever read our output has gone) is such a request too.
//
//   StopSignal stop;
//   while (!stop.requested()) { ... }
#ifndef HEADWISE_MODEL_TRAIN_STOP_SIGNAL_H_
#define HEADWISE_MODEL_TRAIN_STOP_SIGNAL_H_

#include <csignal>

namespace headwise {

// Handles the signals while it lives; one object at a time (checked).
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  // The signal's number, 0 if none came.
  int signal() const;

 private:
  struct sigaction old_interrupt_, old_terminate_, old_pipe_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_STOP_SIGNAL_H_
