#include <vector>

#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace headwise {
namespace {

// y = x w^T, x: [2, 3], w: [2, 3], all row-major.
TEST(OneDnnTest, Matmul) {
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, w = {1, 0, 1, 0, 1, 0}, y(4);
  const auto f32 = dnnl::memory::data_type::f32;
  const dnnl::memory::desc x_desc({2, 3}, f32, dnnl::memory::format_tag::ab);
  const dnnl::memory::desc w_desc({3, 2}, f32, dnnl::memory::format_tag::ba);
  const dnnl::memory::desc y_desc({2, 2}, f32, dnnl::memory::format_tag::ab);
  const dnnl::matmul matmul(
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(x_desc, w_desc, y_desc), engine));
  matmul.execute(stream, {{DNNL_ARG_SRC, dnnl::memory(x_desc, engine, x.data())},
                          {DNNL_ARG_WEIGHTS, dnnl::memory(w_desc, engine, w.data())},
                          {DNNL_ARG_DST, dnnl::memory(y_desc, engine, y.data())}});
  stream.wait();
  EXPECT_EQ(y, (std::vector<float>{4, 2, 10, 5}));
}

}  // namespace
}  // namespace headwise
