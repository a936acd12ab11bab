#include "kernels/gemm/onednn_product.h"

#include <omp.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "dnnl.hpp"
#include "kernels/common/thread_scratch.h"

namespace headwise::gemm {
namespace {

// oneDNN asks OpenMP how many threads to use, when it makes a primitive and when it runs one. The
// setting belongs to the calling thread; it is put back so that nobody else's OpenMP code notices.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

const dnnl::engine& CpuEngine() {
  static const auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

template <typename T>
constexpr dnnl::memory::data_type kOneDnnType =
    std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;

// Everything a primitive is made for.
struct PanelShape {
  dnnl::memory::data_type in, out;
  std::int64_t m, n, k;
  std::int64_t a_row_stride, a_col_stride, b_row_stride, b_col_stride, c_stride;
  bool bias;

  auto operator<=>(const PanelShape&) const = default;
};

struct Panel {
  dnnl::memory::desc a, b, bias, c, scratchpad;
  dnnl::matmul multiply;  // empty if oneDNN has none
};

std::shared_ptr<const Panel> MakePanel(const PanelShape& s) {
  using Dims = dnnl::memory::dims;
  using Desc = dnnl::memory::desc;
  auto panel = std::make_shared<Panel>();
  panel->a = Desc({s.m, s.k}, s.in, Dims{s.a_row_stride, s.a_col_stride});
  panel->b = Desc({s.k, s.n}, s.in, Dims{s.b_row_stride, s.b_col_stride});
  panel->c = Desc({s.m, s.n}, s.out, Dims{s.c_stride, 1});
  if (s.bias) panel->bias = Desc({1, s.n}, dnnl::memory::data_type::f32, Dims{s.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // or panels could not run at once
  const dnnl::matmul::desc operation =
      s.bias ? dnnl::matmul::desc(panel->a, panel->b, panel->bias, panel->c)
             : dnnl::matmul::desc(panel->a, panel->b, panel->c);
  const dnnl::matmul::primitive_desc description(operation, attributes, CpuEngine(),
                                                 /*allow_empty=*/true);
  if (description) {
    panel->scratchpad = description.scratchpad_desc();
    panel->multiply = dnnl::matmul(description);
  }
  return panel;
}

// Primitives made so far: generating one's code takes about a millisecond. Thread-safe.
class PanelCache {
 public:
  std::shared_ptr<const Panel> Get(const PanelShape& shape) {
    std::lock_guard lock(mutex_);
    if (const auto found = panels_.find(shape); found != panels_.end()) return found->second;
    // A model has some dozens of shapes. Should somebody run through thousands, start afresh.
    if (panels_.size() >= kMaxPanels) panels_.clear();
    return panels_[shape] = MakePanel(shape);
  }

 private:
  static constexpr std::size_t kMaxPanels = 1024;

  std::mutex mutex_;
  std::map<PanelShape, std::shared_ptr<const Panel>> panels_;  // guarded by mutex_
};

PanelCache& Cache() {
  static auto& cache = *new PanelCache;
  return cache;
}

void Run(const Panel& panel, const void* a, const void* b, const float* bias, void* c) {
  const dnnl::engine& engine = CpuEngine();
  thread_local dnnl::stream stream(engine);
  ThreadScratch scratch;
  // oneDNN's handles are void* even for what it only reads.
  const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, memory(panel.a, a)},
      {DNNL_ARG_WEIGHTS, memory(panel.b, b)},
      {DNNL_ARG_DST, memory(panel.c, c)},
      {DNNL_ARG_SCRATCHPAD,
       memory(panel.scratchpad, scratch.Take<std::byte>(panel.scratchpad.get_size()))},
  };
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(panel.bias, bias));
  panel.multiply.execute(stream, arguments);
}

// How c is cut. A function of the shape alone: panels must be the same for any number of threads.
struct PanelGrid {
  std::int64_t rows, cols;  // of a panel; those at the edges may be smaller
};

// 256 x 512 runs at oneDNN's full rate and leaves both operands' panels in the second-level cache;
// a product too small to make four of them, so that threads find work, is cut finer, columns first:
// a decoding step has few rows.
PanelGrid PanelsOf(std::int64_t m, std::int64_t n) {
  PanelGrid grid = {256, 512};
  const auto panels = [&] {
    return ((m + grid.rows - 1) / grid.rows) * ((n + grid.cols - 1) / grid.cols);
  };
  while (panels() < 4 && grid.cols > 128) grid.cols /= 2;
  while (panels() < 4 && grid.rows > 64) grid.rows /= 2;
  return grid;
}

}  // namespace

template <typename TIn, typename TOut>
bool OneDnnProduct(const Product<TIn, TOut>& product, ThreadPool& pool) {
  const auto& a = product.a;
  const auto& b = product.b;
  const PanelGrid grid = PanelsOf(product.m, product.n);
  const auto panel_at = [&](std::int64_t row, std::int64_t col) {
    const OneOpenMpThread one_thread;
    return Cache().Get(PanelShape{.in = kOneDnnType<TIn>,
                                  .out = kOneDnnType<TOut>,
                                  .m = std::min(grid.rows, product.m - row),
                                  .n = std::min(grid.cols, product.n - col),
                                  .k = product.k,
                                  .a_row_stride = a.row_stride,
                                  .a_col_stride = a.col_stride,
                                  .b_row_stride = b.row_stride,
                                  .b_col_stride = b.col_stride,
                                  .c_stride = product.c.stride,
                                  .bias = product.bias != nullptr});
  };
  // Whether oneDNN has a product depends on its types, so the first panel answers for all.
  if (!panel_at(0, 0)->multiply) return false;
  const std::int64_t across = (product.n + grid.cols - 1) / grid.cols;
  const std::int64_t down = (product.m + grid.rows - 1) / grid.rows;
  pool.ParallelFor(across * down, [&](std::int64_t i) {
    const OneOpenMpThread one_thread;
    const std::int64_t row = i / across * grid.rows, col = i % across * grid.cols;
    Run(*panel_at(row, col), a.at(row, 0), b.at(0, col),
        product.bias == nullptr ? nullptr : product.bias + col, product.c.row(row) + col);
  });
  return true;
}

template bool OneDnnProduct(const Product<float, float>&, ThreadPool&);
template bool OneDnnProduct(const Product<BFloat16, BFloat16>&, ThreadPool&);
template bool OneDnnProduct(const Product<BFloat16, float>&, ThreadPool&);

}  // namespace headwise::gemm
