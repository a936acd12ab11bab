// report: what was measured, as tables for a person and as JSON lines for a program.
//
//   UnitResult train = ...;
//   std::fputs(UnitLines(train).c_str(), stdout);
//   for (const Figure& figure : Figures(train)) Print(ToJson(figure, context));
#ifndef HEADWISE_MODEL_BENCH_REPORT_H_
#define HEADWISE_MODEL_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/bench/statistics.h"

namespace headwise {

// What all figures of a run have in common.
struct BenchContext {
  std::string preset;  // or the path of a configuration
  std::int64_t layers = 0;
  std::string dtype;   // of activations: "F32", "BF16"
  std::string device;  // as --device names it
  int threads = 0;
};

// A unit at one size, fused and unfused in turns with its floor. Seconds by round.
struct UnitResult {
  std::string unit;         // "train", "prefill", "decode"
  std::int64_t tokens = 0;  // as --tokens says
  std::int64_t rows = 1;
  std::int64_t done = 0;  // tokens that a run goes through
  // Of a run, and of the product that is its floor; 0 where that is a copy.
  double flops = 0, floor_flops = 0;
  // That a run must read, and that the copy that is its floor moves; 0 where that is a product.
  double bytes = 0, floor_bytes = 0;
  std::vector<double> fused, unfused, floor;  // unfused is empty where it was not measured
};

// One kernel at one size, in turns with a copy and, where it has flops, a product.
struct KernelResult {
  std::string name;
  std::int64_t tokens = 0, calls = 0, bytes = 0;
  double copied = 0;  // bytes that the copy moves
  double flops = 0, floor_flops = 0;
  std::vector<double> seconds, copy, product;  // product is empty without flops
};

// One number. `value` is the median of summary; docs/performance.md lists the names.
struct Figure {
  std::string name;  // "train/fused/time"
  std::string unit;  // "ms", "tokens/s", "GFLOP/s", "GB/s", "B", "ratio"
  std::int64_t tokens = 0, rows = 1;
  Summary summary;
};

std::vector<Figure> Figures(const UnitResult& result);
std::vector<Figure> Figures(const KernelResult& result);

// One object, without a newline. The spread of one sample is null, in the tables "-".
std::string ToJson(const Figure& figure, const BenchContext& context);

// The heads of the two tables, and the lines of one result in it, with newlines.
std::string UnitHead();
std::string UnitLines(const UnitResult& result);
std::string KernelHead();
std::string KernelLine(const KernelResult& result);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_REPORT_H_
