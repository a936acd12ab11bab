// A fuzz target, and a small driver for it where no libFuzzer is at hand: g++ has none, and tests
// must be deterministic.
//
// A target is one .cc file that defines
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
//
// as libFuzzer wants it, and MakeFuzzTarget() for the driver. Linked with :fuzz_driver it is a
// test: every seed, then mutations of the seeds. Iteration i depends on i alone, so a failure is
// repeated with `--only=i`; what fails is a crash, a failed HW_CHECK or a sanitizer's report, and
// the driver then prints i and the input.
//
//   bazel test //tests/fuzz:safetensors_fuzz_test
//   bazel run --config=asan //tests/fuzz:safetensors_fuzz_test -- --iterations=10000000
#ifndef HEADWISE_TESTS_FUZZ_FUZZ_DRIVER_H_
#define HEADWISE_TESTS_FUZZ_FUZZ_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace headwise {

struct FuzzTarget {
  // Inputs to mutate; at least one.
  std::vector<std::string> seeds;
  // Pieces worth inserting: keywords, numbers at limits.
  std::vector<std::string> dictionary;
  // Makes lengths and checksums of a mutated input right, so that the mutation reaches what lies
  // behind them. Called for three mutations of four. May be empty.
  std::function<void(std::string* input)> repair;
  // Called once at the end: fails a HW_CHECK if the run proved nothing, say because every input was
  // rejected. May be empty.
  std::function<void()> finish;
};

FuzzTarget MakeFuzzTarget();

}  // namespace headwise

#endif  // HEADWISE_TESTS_FUZZ_FUZZ_DRIVER_H_
