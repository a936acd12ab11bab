// What the layout rules of core/parallel/rules say an operation is made of computes what its kernel
// computes: the lines of a rule, in its letters, done with loops in double precision. Types are
// derived from these lines, so this is what ties them to the kernels.
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/heads/packed_qkv.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "model/ops.h"
#include "model/random.h"

namespace headwise {
namespace {

constexpr double kRounding = 1e-12;

// Numbers under one letter per dimension, outermost first.
struct Array {
  std::string letters;
  std::vector<std::int64_t> sizes;
  std::vector<double> values;
};

std::int64_t Count(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

Array Random(const std::string& letters, const std::vector<std::int64_t>& sizes, int seed) {
  Array a = {letters, sizes, {}};
  for (std::int64_t i = 0; i < Count(sizes); ++i) {
    a.values.push_back(Normal(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i)));
  }
  return a;
}

using Function = std::function<double(const std::vector<double>&)>;

// result[...] = sum over the letters that the result lacks of f(an element of each operand).
Array Apply(const std::string& result, const std::vector<Array>& operands, const Function& f) {
  std::string all = result;
  std::map<char, std::int64_t> size;
  for (const Array& a : operands) {
    for (std::size_t i = 0; i < a.letters.size(); ++i) {
      if (all.find(a.letters[i]) == std::string::npos) all += a.letters[i];
      HW_CHECK(size.emplace(a.letters[i], a.sizes[i]).first->second == a.sizes[i]) << a.letters;
    }
  }
  Array out = {result, {}, {}};
  std::int64_t total = 1;
  for (const char letter : result) out.sizes.push_back(size.at(letter));
  for (const char letter : all) total *= size.at(letter);
  out.values.assign(static_cast<std::size_t>(Count(out.sizes)), 0.0);
  std::map<char, std::int64_t> at;
  const auto element = [&](const Array& a) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < a.letters.size(); ++i) {
      index = index * a.sizes[i] + at[a.letters[i]];
    }
    return static_cast<std::size_t>(index);
  };
  std::vector<double> arguments(operands.size());
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i;
    for (std::size_t l = all.size(); l-- > 0;) {
      at[all[l]] = rest % size.at(all[l]);
      rest /= size.at(all[l]);
    }
    for (std::size_t a = 0; a < operands.size(); ++a) {
      arguments[a] = operands[a].values[element(operands[a])];
    }
    out.values[element(out)] += f(arguments);
  }
  return out;
}

// A line of a rule: "tk,nk->tn" of a product.
Array Product(const std::string& letters, const std::vector<Array>& operands) {
  const std::vector<std::string> sides = absl::StrSplit(letters, "->");
  std::string given;
  for (const Array& a : operands) given += (given.empty() ? "" : ",") + a.letters;
  HW_CHECK_EQ(given, sides[0]);
  return Apply(sides[1], operands, [](const std::vector<double>& x) {
    double product = 1;
    for (const double factor : x) product *= factor;
    return product;
  });
}

Array Sum(const std::string& result, const Array& a) {
  return Apply(result, {a}, [](const std::vector<double>& x) { return x[0]; });
}

Tensor TensorOf(const Array& a, std::int64_t rows) {
  Tensor t = Tensor::Empty({rows, Count(a.sizes) / rows}, DType::kF64, Device::kCpu);
  std::copy(a.values.begin(), a.values.end(), t.data<double>());
  return t;
}

Tensor VectorOf(const Array& a) { return TensorOf(a, 1).View({Count(a.sizes)}); }

void ExpectSame(const Tensor& kernel, const Array& lines, const char* what) {
  ASSERT_EQ(kernel.size(), Count(lines.sizes)) << what;
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < kernel.size(); ++i) {
    const double expected = lines.values[static_cast<std::size_t>(i)];
    difference += std::pow(kernel.data<double>()[i] - expected, 2);
    norm += expected * expected;
  }
  EXPECT_GT(norm, 0) << what;
  EXPECT_LT(std::sqrt(difference / norm), kRounding) << what;
}

class Decomposition : public testing::Test {
 protected:
  ThreadPool pool_{1};
  OpContext ctx_ = {.compute = DType::kF64, .gemm = GemmBackend::kContract, .pool = &pool_};
};

// --- linear layers ---

TEST_F(Decomposition, Linear) {
  const Array x = Random("tk", {5, 3}, 1), w = Random("nk", {4, 3}, 2), b = Random("n", {4}, 3);
  const Array dy = Random("tn", {5, 4}, 4);
  const Array y =
      Apply("tn", {Product("tk,nk->tn", {x, w}), b}, [](const auto& v) { return v[0] + v[1]; });
  const Tensor tx = TensorOf(x, 5), tw = TensorOf(w, 4), tdy = TensorOf(dy, 5);
  ExpectSame(ops::Linear(ctx_, tx, tw, VectorOf(b)), y, "y");
  ExpectSame(ops::LinearBackwardInput(ctx_, tdy, tw), Product("tn,nk->tk", {dy, w}), "dx");
  Tensor dw = Tensor::Empty({4, 3}, DType::kF64, Device::kCpu);
  ops::LinearBackwardWeight(ctx_, tdy, tx, dw);
  ExpectSame(dw, Product("tn,tk->nk", {dy, x}), "dw");
  Tensor db = Tensor::Empty({4}, DType::kF64, Device::kCpu);
  ops::LinearBackwardBias(ctx_, tdy, db);
  ExpectSame(db, Sum("n", dy), "db");
}

TEST_F(Decomposition, Embedding) {
  const std::vector<std::int32_t> ids = {2, 0, 2, 1};
  Array hot = {"tv", {4, 3}, std::vector<double>(12)};
  for (std::size_t t = 0; t < ids.size(); ++t) {
    hot.values[t * 3 + static_cast<std::size_t>(ids[t])] = 1;
  }
  const Array table = Random("vn", {3, 5}, 1), dout = Random("tn", {4, 5}, 2);
  const Tensor rows = TensorOf(table, 3);
  ExpectSame(ops::Embedding(ctx_, {.ids = ids}, rows), Product("tv,vn->tn", {hot, table}), "x");
  Tensor dtable = Tensor::Empty({3, 5}, DType::kF64, Device::kCpu);
  ops::EmbeddingBackward(ctx_, {.ids = ids}, rows, TensorOf(dout, 4), dtable);
  ExpectSame(dtable, Product("tv,tn->vn", {hot, dout}), "dtable");
}

// --- RMS norm ---

struct NormLines {
  Array y, dx, dweight;
};

// rules::RmsNorm and RmsNormBackward over the last letter of x; `rest` are the others.
NormLines Norm(const Array& x, const Array* weight, const Array& dy, double epsilon) {
  const std::string all = x.letters, rest = all.substr(0, all.size() - 1), last(1, all.back());
  const double width = static_cast<double>(x.sizes.back());
  const auto scale = all + "," + rest + "->" + all;
  const Array squares = Apply(rest, {x}, [](const auto& v) { return v[0] * v[0]; });
  const Array r =
      Apply(rest, {squares}, [&](const auto& v) { return 1 / std::sqrt(v[0] / width + epsilon); });
  const Array xh = Product(scale, {x, r});
  NormLines lines = {.y = xh, .dx = {}, .dweight = {}};
  Array h = dy;
  if (weight != nullptr) {
    lines.y = Product(all + "," + last + "->" + all, {xh, *weight});
    lines.dweight = Product(all + "," + all + "->" + last, {dy, xh});
    h = Product(all + "," + last + "->" + all, {dy, *weight});
  }
  const Array products = Product(all + "," + all + "->" + all, {h, xh});
  const Array c1 = Apply(rest, {products}, [&](const auto& v) { return v[0] / width; });
  const Array along = Product(scale, {xh, c1});
  const Array difference = Apply(all, {h, along}, [](const auto& v) { return v[0] - v[1]; });
  lines.dx = Product(scale, {difference, r});
  return lines;
}

TEST_F(Decomposition, RmsNorm) {
  const Array x = Random("tn", {5, 7}, 1), w = Random("n", {7}, 2), dy = Random("tn", {5, 7}, 3);
  const headwise::RmsNorm op = {.style = RmsNormStyle::kWeighted, .epsilon = 0.125F};
  const NormLines lines = Norm(x, &w, dy, 0.125);
  ExpectSame(ops::RmsNorm(ctx_, op, TensorOf(x, 5), VectorOf(w)), lines.y, "y");
  Tensor dw = Tensor::Empty({7}, DType::kF64, Device::kCpu);
  ExpectSame(ops::RmsNormBackward(ctx_, op, TensorOf(x, 5), VectorOf(w), TensorOf(dy, 5), dw),
             lines.dx, "dx");
  ExpectSame(dw, lines.dweight, "dw");
}

// Where the weight scales the input the products come in another order, of the same letters.
TEST_F(Decomposition, RmsNormOfAScaledInput) {
  const Array x = Random("tn", {5, 7}, 1), w = Random("n", {7}, 2), dy = Random("tn", {5, 7}, 3);
  const headwise::RmsNorm op = {
      .style = RmsNormStyle::kInputScaled, .epsilon = 0.125F, .centre = 0};
  const NormLines inner = Norm(Product("tn,n->tn", {x, w}), nullptr, dy, 0.125);
  ExpectSame(ops::RmsNorm(ctx_, op, TensorOf(x, 5), VectorOf(w)), inner.y, "y");
  Tensor dw = Tensor::Empty({7}, DType::kF64, Device::kCpu);
  ExpectSame(ops::RmsNormBackward(ctx_, op, TensorOf(x, 5), VectorOf(w), TensorOf(dy, 5), dw),
             Product("tn,n->tn", {inner.dx, w}), "dx");
  ExpectSame(dw, Product("tn,tn->n", {inner.dx, x}), "dw");
}

// --- gates ---

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_F(Decomposition, SwigluAndGate) {
  const Array x = Random("tf", {4, 6}, 1), g = Random("tf", {4, 6}, 2), d = Random("tf", {4, 6}, 3);
  const Array f = Apply("tf", {g}, [](const auto& v) { return v[0] * Sigmoid(v[0]); });
  const Array slope = Apply("tf", {g}, [](const auto& v) {
    const double s = Sigmoid(v[0]);
    return s + v[0] * s * (1 - s);
  });
  ExpectSame(ops::Swiglu(ctx_, {}, TensorOf(g, 4), TensorOf(x, 4)), Product("tf,tf->tf", {x, f}),
             "y");
  const ops::GateGradients back =
      ops::SwigluBackwardInPlace(ctx_, {}, TensorOf(g, 4), TensorOf(x, 4), TensorOf(d, 4));
  ExpectSame(back.x, Product("tf,tf->tf", {d, f}), "dx");
  ExpectSame(back.gate, Product("tf,tf,tf->tf", {d, x, slope}), "dgate");
}

TEST_F(Decomposition, GatedResidual) {
  const ResidualGate op = {.temperature = 0.5};
  const Array h = Random("tn", {5, 6}, 1), branch = Random("tn", {5, 6}, 2);
  const Array gate = Random("n", {6}, 3), dout = Random("tn", {5, 6}, 4);
  const auto of_gate = [&](const std::function<double(double)>& f) {
    return Apply("n", {gate}, [&](const auto& v) { return f(Sigmoid(v[0] / op.temperature)); });
  };
  const auto root = [](double beta) { return std::sqrt((1 - beta) * (1 + beta)); };
  const Array alpha = of_gate(root), beta = of_gate([](double b) { return b; });
  const Array dbeta = of_gate([&](double b) { return b * (1 - b) / op.temperature; });
  const Array dalpha =
      of_gate([&](double b) { return -b / root(b) * b * (1 - b) / op.temperature; });
  const auto add = [](const std::string& letters, const Array& a, const Array& b) {
    return Apply(letters, {a, b}, [](const auto& v) { return v[0] + v[1]; });
  };
  ExpectSame(ops::GatedResidual(ctx_, op, TensorOf(h, 5), TensorOf(branch, 5), VectorOf(gate)),
             add("tn", Product("tn,n->tn", {h, alpha}), Product("tn,n->tn", {branch, beta})),
             "out");
  Tensor dgate = Tensor::Empty({6}, DType::kF64, Device::kCpu);
  const ops::ResidualGradients d = ops::GatedResidualBackward(
      ctx_, op, TensorOf(h, 5), TensorOf(branch, 5), VectorOf(gate), TensorOf(dout, 5), dgate);
  ExpectSame(d.h, Product("tn,n->tn", {dout, alpha}), "dh");
  ExpectSame(d.branch, Product("tn,n->tn", {dout, beta}), "dbranch");
  ExpectSame(dgate,
             add("n", Product("n,n->n", {Product("tn,tn->n", {dout, h}), dalpha}),
                 Product("n,n->n", {Product("tn,tn->n", {dout, branch}), dbeta})),
             "dgate");
}

// --- prepare_qkv ---

constexpr std::int64_t kT = 6, kG = 2, kM = 3, kD = 4;

// One role of a packed row: [T, heads, D], heads = [G M] or [G].
Array TakeRole(const Array& packed, std::int64_t first, std::int64_t count) {
  Array role = {"thd", {kT, kG * count, kD}, {}};
  for (std::int64_t tg = 0; tg < kT * kG; ++tg) {
    for (std::int64_t i = 0; i < count * kD; ++i) {
      role.values.push_back(
          packed.values[static_cast<std::size_t>((tg * (kM + 2) + first) * kD + i)]);
    }
  }
  return role;
}

// Pairs (d, d + D/2) turned by their token's angles; backward by the opposite ones.
Array Rotate(const RotaryTable& table, const Array& x, double direction) {
  Array y = x;
  const std::int64_t heads = x.sizes[1], half = kD / 2;
  for (std::int64_t t = 0; t < kT; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<std::size_t>((t * heads + h) * kD);
      for (std::int64_t i = 0; i < half; ++i) {
        const double c = table.Cos(t)[i], s = direction * table.Sin(t)[i];
        const auto a = at + static_cast<std::size_t>(i), b = a + static_cast<std::size_t>(half);
        y.values[a] = x.values[a] * c - x.values[b] * s;
        y.values[b] = x.values[b] * c + x.values[a] * s;
      }
    }
  }
  return y;
}

TEST_F(Decomposition, PrepareQkv) {
  const RotaryTable table = *RotaryTable::Create({.length = kT, .rotary_dim = kD, .theta = 10});
  const QkvPreparation op = {
      .layout = *PackedQkv::Interleaved({.query_heads = kG * kM, .kv_heads = kG, .head_dim = kD}),
      .norm = HeadNorm::kWeighted,
      .epsilon = 0.125F,
      .rotary = &table};
  const Array packed = Random("tc", {kT, kG * (kM + 2) * kD}, 1);
  const Array wq = Random("d", {kD}, 2), wk = Random("d", {kD}, 3);
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < kT; ++t) positions.push_back(t);
  const ops::QkvArguments arguments = {.op = op,
                                       .q_weight = VectorOf(wq),
                                       .k_weight = VectorOf(wk),
                                       .positions = {.values = positions}};
  const Array dq = Random("thd", {kT, kG * kM, kD}, 4), dk = Random("thd", {kT, kG, kD}, 5);
  const Array dv = Random("thd", {kT, kG, kD}, 6);

  const Array q = TakeRole(packed, 0, kM), k = TakeRole(packed, kM, 1);
  const NormLines nq = Norm(q, &wq, Rotate(table, dq, -1), 0.125);
  const NormLines nk = Norm(k, &wk, Rotate(table, dk, -1), 0.125);
  const Tensor tpacked = TensorOf(packed, kT);
  const ops::Qkv out = ops::PrepareQkv(ctx_, arguments, tpacked);
  ExpectSame(out.q, Rotate(table, nq.y, 1), "q");
  ExpectSame(out.k, Rotate(table, nk.y, 1), "k");
  ExpectSame(out.v, TakeRole(packed, kM + 1, 1), "v");

  Tensor dwq = Tensor::Empty({kG, kD}, DType::kF64, Device::kCpu), dwk = dwq.Clone();
  const Tensor dpacked = ops::PrepareQkvBackward(
      ctx_, arguments, tpacked,
      {.q = TensorOf(dq, kT), .k = TensorOf(dk, kT), .v = TensorOf(dv, kT)}, &dwq, &dwk);
  const Array back = {
      "tc", packed.sizes, {dpacked.data<double>(), dpacked.data<double>() + dpacked.size()}};
  ExpectSame(TensorOf(nq.dx, kT), TakeRole(back, 0, kM), "dpacked of q");
  ExpectSame(TensorOf(nk.dx, kT), TakeRole(back, kM, 1), "dpacked of k");
  ExpectSame(TensorOf(dv, kT), TakeRole(back, kM + 1, 1), "dpacked of v");
  Tensor dw = Tensor::Empty({kD}, DType::kF64, Device::kCpu);
  ops::ReduceHeadNormGradient(ctx_, dwq, dw);
  ExpectSame(dw, nq.dweight, "dq_weight");
  ops::ReduceHeadNormGradient(ctx_, dwk, dw);
  ExpectSame(dw, nk.dweight, "dk_weight");
}

// --- attention ---

TEST_F(Decomposition, Attention) {
  const headwise::Attention op = {
      .query_heads = kG * kM, .kv_heads = kG, .head_dim = kD, .scale = 0.5, .window = 3};
  // Two documents: the batch letter b is a group of whole documents.
  constexpr std::int64_t kB = 2, kL = 6, kFirst = 2;
  const std::vector<AttentionSegment> segments = {
      {.query_begin = 0, .num_queries = kFirst, .key_begin = 0, .num_keys = kFirst},
      {.query_begin = kFirst,
       .num_queries = kL - kFirst,
       .key_begin = kFirst,
       .num_keys = kL - kFirst},
      {.query_begin = kL, .num_queries = kL, .key_begin = kL, .num_keys = kL}};
  const Array q = Random("blgmd", {kB, kL, kG, kM, kD}, 1);
  const Array k = Random("bsgd", {kB, kL, kG, kD}, 2), v = Random("bsgd", {kB, kL, kG, kD}, 3);
  const Array sinks = Random("gm", {kG, kM}, 4), d_o = Random("blgmd", q.sizes, 5);
  Array mask = {"bls", {kB, kL, kL}, {}};
  for (std::int64_t b = 0; b < kB; ++b) {
    for (std::int64_t l = 0; l < kL; ++l) {
      for (std::int64_t s = 0; s < kL; ++s) {
        const bool same = b == 1 || (l < kFirst) == (s < kFirst);
        mask.values.push_back(same && s <= l && l - s < op.window ? 1 : 0);
      }
    }
  }
  const auto masked_exp = [&](const Array& scores) {
    return Apply("blgms", {scores, mask},
                 [&](const auto& x) { return x[1] * std::exp(op.scale * x[0]); });
  };

  // Forward: probabilities, products with v, the logarithm of the denominator.
  const Array scores = Product("blgmd,bsgd->blgms", {q, k});
  const Array e = masked_exp(scores);
  const Array log_sum_exp = Apply("blgm", {Sum("blgm", e), sinks},
                                  [](const auto& x) { return std::log(x[0] + std::exp(x[1])); });
  const Array p =
      Apply("blgms", {e, log_sum_exp}, [](const auto& x) { return x[0] / std::exp(x[1]); });
  const Array o = Product("blgms,bsgd->blgmd", {p, v});
  const std::int64_t tokens = kB * kL;
  const ops::Qkv qkv = {
      .q = TensorOf(q, tokens), .k = TensorOf(k, tokens), .v = TensorOf(v, tokens)};
  const ops::AttentionOutput out =
      ops::Attention(ctx_, op, segments, qkv, VectorOf(sinks), /*keep_statistics=*/true);
  ExpectSame(out.o, o, "o");
  ExpectSame(out.log_sum_exp, log_sum_exp, "log_sum_exp");

  // Backward, from the scores and log_sum_exp.
  const auto scaled = [&](Array a) {
    for (double& x : a.values) x *= op.scale;
    return a;
  };
  const Array dv = Product("blgmd,blgms->bsgd", {d_o, p});
  const Array dp = Product("blgmd,bsgd->blgms", {d_o, v});
  const Array delta = Product("blgmd,blgmd->blgm", {d_o, o});
  const Array difference = Apply("blgms", {dp, delta}, [](const auto& x) { return x[0] - x[1]; });
  const Array ds = Product("blgms,blgms->blgms", {difference, p});
  const Array p_sink =
      Apply("blgm", {log_sum_exp, sinks}, [](const auto& x) { return std::exp(x[1] - x[0]); });
  Array dsinks = Product("blgm,blgm->gm", {delta, p_sink});
  for (double& x : dsinks.values) x = -x;
  Tensor d_sinks = Tensor::Empty({kG * kM}, DType::kF64, Device::kCpu);
  const ops::Qkv d = ops::AttentionBackward(ctx_, op, segments, qkv, VectorOf(sinks), out,
                                            TensorOf(d_o, tokens), &d_sinks);
  ExpectSame(d.q, scaled(Product("blgms,bsgd->blgmd", {ds, k})), "dq");
  ExpectSame(d.k, scaled(Product("blgms,blgmd->bsgd", {ds, q})), "dk");
  ExpectSame(d.v, dv, "dv");
  ExpectSame(d_sinks, dsinks, "d_sinks");
}

// --- the loss ---

TEST_F(Decomposition, CrossEntropy) {
  constexpr std::int64_t kTokens = 5, kWidth = 3, kVocabulary = 7;
  const LogitTransform op = {.multiplier = 0.75, .cap = 4};
  const Array x = Random("tk", {kTokens, kWidth}, 1), w = Random("vk", {kVocabulary, kWidth}, 2);
  const std::vector<std::int32_t> targets = {3, kIgnoredTarget, 0, 6, 3};
  constexpr double kScale = 0.25;
  Array hot = {"tv", {kTokens, kVocabulary}, std::vector<double>(kTokens * kVocabulary)};
  Array counts = {"t", {kTokens}, {}};
  for (std::size_t t = 0; t < targets.size(); ++t) {
    counts.values.push_back(targets[t] == kIgnoredTarget ? 0 : 1);
    if (targets[t] == kIgnoredTarget) continue;
    hot.values[t * kVocabulary + static_cast<std::size_t>(targets[t])] = 1;
  }
  const Array z = Product("tk,vk->tv", {x, w});
  const auto capped = [&](double value) {
    return op.cap * std::tanh(op.multiplier * value / op.cap);
  };
  // The sum of exponentials, the target's logit, and what they make.
  const Array logits = Apply("tv", {z}, [&](const auto& v) { return capped(v[0]); });
  const Array sum = Apply("t", {logits}, [](const auto& v) { return std::exp(v[0]); });
  const Array target = Product("tv,tv->t", {logits, hot});
  const Array losses = Apply("t", {sum, target, counts},
                             [](const auto& v) { return v[2] * (std::log(v[0]) - v[1]); });
  const Array dz = Apply("tv", {z, sum, hot, counts}, [&](const auto& v) {
    const double h = capped(v[0]) / op.cap;
    return kScale * v[3] * (std::exp(capped(v[0])) / v[1] - v[2]) * op.multiplier * (1 - h * h);
  });
  const ops::HeadLoss loss =
      ops::LinearCrossEntropy(ctx_, op, TensorOf(x, kTokens), TensorOf(w, kVocabulary),
                              {.ids = targets}, {.value = &kScale}, /*backward=*/true);
  ExpectSame(loss.losses, losses, "losses");
  ExpectSame(loss.dz, dz, "dz");
}

// --- experts ---

class RouterDecomposition : public Decomposition,
                            public testing::WithParamInterface<RouterScore> {};

TEST_P(RouterDecomposition, WeightsAndTheirJacobian) {
  constexpr std::int64_t kTokens = 6, kExperts = 5, kChosen = 2;
  const headwise::Router op = {
      .chosen = kChosen, .score = GetParam(), .normalize = true, .scale = 1.25, .multiplier = 0.5};
  const Array z = Random("te", {kTokens, kExperts}, 1);
  const Array bias = Random("e", {kExperts}, 2), dw = Random("tk", {kTokens, kChosen}, 3);
  const Tensor logits = TensorOf(z, kTokens);
  const ops::Routing routing = ops::Route(ctx_, op, logits, VectorOf(bias));
  const auto score = [&](double logit) {
    return op.score == RouterScore::kSoftmax ? std::exp(op.multiplier * logit)
                                             : Sigmoid(op.multiplier * logit);
  };
  const Array scores = Apply("te", {z}, [&](const auto& v) { return score(v[0]); });
  const Array all = Sum("t", scores);
  // The best of scores + bias; their scores over the sum of the chosen.
  Array hot = {"tke", {kTokens, kChosen, kExperts}, {}};
  for (std::int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> keys;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const double p = scores.values[static_cast<std::size_t>(t * kExperts + e)];
      const double total = op.score == RouterScore::kSoftmax ? all.values[t] : 1;
      keys.push_back(p / total + bias.values[static_cast<std::size_t>(e)]);
    }
    for (std::int64_t c = 0; c < kChosen; ++c) {
      const auto best = std::max_element(keys.begin(), keys.end());
      const std::int64_t expert = best - keys.begin();
      *best = -1e300;
      EXPECT_EQ(routing.experts.data<std::int32_t>()[t * kChosen + c], expert);
      for (std::int64_t e = 0; e < kExperts; ++e) hot.values.push_back(e == expert ? 1 : 0);
    }
  }
  const Array of_chosen = Product("tke,te->tk", {hot, scores});
  const Array total = Sum("t", of_chosen);
  const Array u = Apply("tk", {of_chosen, total}, [](const auto& v) { return v[0] / v[1]; });
  Array weights = u;
  for (double& w : weights.values) w *= op.scale;
  ExpectSame(routing.weights, weights, "weights");

  // dz = sum over k of dw J: J[t, k, e] of the chosen experts, by differences of u.
  Array of_logits = {"tke", hot.sizes, std::vector<double>(hot.values.size())};
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < kChosen; ++c) {
      for (std::int64_t e = 0; e < kExperts; ++e) {
        for (std::int64_t other = 0; other < kChosen; ++other) {
          const auto row = static_cast<std::size_t>((t * kChosen + other) * kExperts + e);
          if (hot.values[row] == 0) continue;
          const double logit = z.values[static_cast<std::size_t>(t * kExperts + e)];
          const double slope = op.score == RouterScore::kSoftmax
                                   ? op.multiplier * score(logit)
                                   : op.multiplier * score(logit) * (1 - score(logit));
          const double sum = total.values[static_cast<std::size_t>(t)];
          const double share = u.values[static_cast<std::size_t>(t * kChosen + c)];
          of_logits.values[static_cast<std::size_t>((t * kChosen + c) * kExperts + e)] +=
              op.scale * slope / sum * ((other == c ? 1 : 0) - share);
        }
      }
    }
  }
  ExpectSame(ops::RouteBackward(ctx_, op, logits, routing, TensorOf(dw, kTokens)),
             Product("tk,tke->te", {dw, of_logits}), "dlogits");
}

INSTANTIATE_TEST_SUITE_P(Of, RouterDecomposition,
                         testing::Values(RouterScore::kSoftmax, RouterScore::kSigmoid),
                         [](const auto& info) {
                           return info.param == RouterScore::kSoftmax ? "Softmax" : "Sigmoid";
                         });

TEST_F(Decomposition, DispatchExpertsCombine) {
  constexpr std::int64_t kTokens = 6, kExperts = 4, kChosen = 2, kWidth = 3, kOut = 5;
  const Array z = Random("te", {kTokens, kExperts}, 1);
  const ops::Routing routing = ops::Route(ctx_, {.chosen = kChosen}, TensorOf(z, kTokens), {});
  const std::int64_t rows = kTokens * kChosen;
  // Which token and which choice a row is, and which expert's: [T, k, R] and [E, R].
  Array placed = {
      "tkr", {kTokens, kChosen, rows}, std::vector<double>(static_cast<std::size_t>(rows * rows))};
  Array at = {
      "er", {kExperts, rows}, std::vector<double>(static_cast<std::size_t>(kExperts * rows))};
  for (std::int64_t c = 0; c < rows; ++c) {
    const std::int64_t row = routing.groups.row_of[static_cast<std::size_t>(c)];
    const std::int64_t expert = routing.experts.data<std::int32_t>()[c];
    placed.values[static_cast<std::size_t>(c * rows + row)] = 1;
    at.values[static_cast<std::size_t>(expert * rows + row)] = 1;
  }
  const Array x = Random("tn", {kTokens, kWidth}, 2),
              w = Random("emn", {kExperts, kOut, kWidth}, 3);
  const Array dy = Random("tm", {kTokens, kOut}, 4);
  const Array weights = {"tk",
                         {kTokens, kChosen},
                         {routing.weights.data<double>(), routing.weights.data<double>() + rows}};

  const Array sent = Product("tn,tkr->rn", {x, placed});
  const Tensor tsent = ops::DispatchTokens(ctx_, routing, TensorOf(x, kTokens));
  ExpectSame(tsent, sent, "rows");
  const Tensor tw = TensorOf(w, kExperts).View({kExperts, kOut, kWidth});
  const Array outputs = Product("er,rn,emn->rm", {at, sent, w});
  const ops::ExpertRows all = ops::RowsOf(routing);
  const Tensor toutputs = ops::ExpertLinear(ctx_, all, tsent, tw, {});
  ExpectSame(toutputs, outputs, "outputs");
  const Array of_rows = Product("tk,tkr->r", {weights, placed});
  const Array weighted = Product("rm,r->rm", {outputs, of_rows});
  ExpectSame(ops::CombineExperts(ctx_, routing, toutputs),
             Product("rm,tkr->tm", {weighted, placed}), "y");

  const ops::ExpertGradients d =
      ops::CombineExpertsBackward(ctx_, routing, toutputs, TensorOf(dy, kTokens));
  const Array dy_rows = Product("tm,tkr->rm", {dy, placed});
  const Array doutputs = Product("rm,r->rm", {dy_rows, of_rows});
  ExpectSame(d.outputs, doutputs, "doutputs");
  const Array choices = Product("rm,rm->r", {outputs, dy_rows});
  ExpectSame(d.weights, Product("r,tkr->tk", {choices, placed}), "dweights");
  const Array drows = Product("er,rm,emn->rn", {at, doutputs, w});
  const Tensor tdrows = ops::ExpertLinearBackwardInput(ctx_, all, d.outputs, tw);
  ExpectSame(tdrows, drows, "drows");
  Tensor dw = Tensor::Empty({kExperts, kOut, kWidth}, DType::kF64, Device::kCpu);
  ops::ExpertLinearBackwardWeight(ctx_, all, d.outputs, tsent, dw);
  ExpectSame(dw, Product("er,rm,rn->emn", {at, doutputs, sent}), "dw");
  Tensor db = Tensor::Empty({kExperts, kOut}, DType::kF64, Device::kCpu);
  ops::ExpertLinearBackwardBias(ctx_, all, d.outputs, db);
  ExpectSame(db, Product("er,rm->em", {at, doutputs}), "db");
  ExpectSame(ops::DispatchTokensBackward(ctx_, routing, tdrows),
             Product("rn,tkr->tn", {drows, placed}), "dx");
}

}  // namespace
}  // namespace headwise
