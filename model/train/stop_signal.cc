#include "model/train/stop_signal.h"

#include <atomic>

#include "core/base/check.h"

namespace headwise {
namespace {

std::atomic<bool> alive{false};
volatile std::sig_atomic_t received = 0;

// SA_RESETHAND has already restored the default for this signal; the other one must end the process
// too.
void Receive(int signal) {
  received = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

// Stays in place: every later write to the closed pipe fails quietly.
void ReceivePipe(int signal) { received = signal; }

}  // namespace

StopSignal::StopSignal() {
  HW_CHECK(!alive.exchange(true)) << "two StopSignal objects at once";
  received = 0;
  struct sigaction action = {};
  action.sa_handler = Receive;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  action.sa_handler = ReceivePipe;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, &old_pipe_);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  alive = false;
}

bool StopSignal::requested() const { return received != 0; }

int StopSignal::signal() const { return received; }

}  // namespace headwise
