#include "tests/fuzz/fuzz_driver.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/base/check.h"

// Present when a sanitizer is linked in: its reports end the process without a signal.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace headwise {
namespace {

// The input being tested, for the report of a failure. Seed k counts as iteration -1 - k.
long g_iteration = 0;
const std::string* g_input = nullptr;

void PrintInput() {
  if (g_input == nullptr) return;
  const std::string* input = g_input;
  g_input = nullptr;  // once
  if (g_iteration < 0) {
    std::fprintf(stderr, "\nfuzz: failed at seed %ld, ", -1 - g_iteration);
  } else {
    std::fprintf(stderr, "\nfuzz: failed at iteration %ld (repeat with --only=%ld), ", g_iteration,
                 g_iteration);
  }
  std::fprintf(stderr, "input of %zu bytes:\n", input->size());
  for (const char c : input->substr(0, 4096)) {
    if (c >= ' ' && c <= '~' && c != '\\') {
      std::fputc(c, stderr);
    } else {
      std::fprintf(stderr, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  std::fputc('\n', stderr);
}

void OnSignal(int signal) {
  PrintInput();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Mutator {
 public:
  Mutator(const FuzzTarget& target, long iteration)
      : target_(target), rng_(static_cast<std::uint64_t>(iteration)) {}

  std::string Make() {
    std::string input = Pick(target_.seeds);
    const std::size_t count = std::size_t{1} << Below(4);  // 1, 2, 4 or 8 mutations
    for (std::size_t i = 0; i < count; ++i) MutateOnce(&input);
    if (target_.repair && Below(4) != 0) target_.repair(&input);
    return input;
  }

 private:
  // [0, n), n > 0. Not std::uniform_int_distribution, whose results differ between libraries.
  std::size_t Below(std::size_t n) { return static_cast<std::size_t>(rng_() % n); }

  const std::string& Pick(const std::vector<std::string>& from) { return from[Below(from.size())]; }

  void MutateOnce(std::string* input) {
    const std::size_t at = Below(input->size() + 1);
    const std::size_t length = Below(std::min<std::size_t>(input->size() - at, 64) + 1);
    switch (Below(8)) {
      case 0:  // one bit
        if (at < input->size()) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
        break;
      case 1:  // one byte
        if (at < input->size()) (*input)[at] = static_cast<char>(Below(256));
        break;
      case 2:
        input->erase(at, length);
        break;
      case 3:  // a piece again, elsewhere
        input->insert(Below(input->size() + 1), input->substr(at, length));
        break;
      case 4:
        input->insert(at, 1 + Below(8), static_cast<char>(Below(256)));
        break;
      case 5: {  // a piece of another seed
        const std::string& other = Pick(target_.seeds);
        const std::size_t from = Below(other.size() + 1);
        input->replace(at, length, other.substr(from, 1 + Below(64)));
        break;
      }
      default: {  // a word of the dictionary, in place of a number or of anything
        if (target_.dictionary.empty()) break;
        const std::size_t digit = input->find_first_of("0123456789", at);
        if (Below(2) == 0 && digit != std::string::npos) {
          const std::size_t end = input->find_first_not_of("0123456789", digit);
          input->replace(digit, end == std::string::npos ? end : end - digit,
                         Pick(target_.dictionary));
        } else {
          input->replace(at, Below(2) == 0 ? length : 0, Pick(target_.dictionary));
        }
      }
    }
  }

  const FuzzTarget& target_;
  std::mt19937_64 rng_;
};

void Test(long iteration, const std::string& input) {
  g_iteration = iteration;
  g_input = &input;
  // A block of exactly this size: reading past its end is seen by ASan.
  std::vector<std::uint8_t> exact(input.begin(), input.end());
  exact.shrink_to_fit();
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  g_input = nullptr;
}

// The value of --name=N, or `otherwise`.
long Flag(int argc, char** argv, const std::string& name, long otherwise) {
  for (int i = 1; i < argc; ++i) {
    const std::string prefix = "--" + name + "=";
    if (std::strncmp(argv[i], prefix.c_str(), prefix.size()) == 0) {
      return std::atol(argv[i] + prefix.size());
    }
  }
  return otherwise;
}

int Main(int argc, char** argv) {
  const FuzzTarget target = MakeFuzzTarget();
  HW_CHECK(!target.seeds.empty());
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(PrintInput);
  } else {
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, OnSignal);
  }
  std::signal(SIGABRT, OnSignal);

  if (const long only = Flag(argc, argv, "only", -1); only >= 0) {
    Test(only, Mutator(target, only).Make());
    std::printf("fuzz: iteration %ld passed\n", only);
    return 0;
  }
  const long iterations = Flag(argc, argv, "iterations", 100'000);
  long seed_iteration = 0;
  for (const std::string& seed : target.seeds) Test(--seed_iteration, seed);
  for (long i = 0; i < iterations; ++i) Test(i, Mutator(target, i).Make());
  if (target.finish) target.finish();
  std::printf("fuzz: %zu seeds and %ld mutations passed\n", target.seeds.size(), iterations);
  return 0;
}

}  // namespace
}  // namespace headwise

int main(int argc, char** argv) { return headwise::Main(argc, argv); }
