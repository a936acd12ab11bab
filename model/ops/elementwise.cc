#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "core/parallel/rules/layer_rules.h"
#include "model/ops.h"
#include "model/ops/kernels_elementwise.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

void AddTo(const OpContext& ctx, const Tensor& a, const Tensor& b, const Tensor& out) {
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::Add<T>(ctx, a.Rows<T>(), b.Rows<T>(), out.Rows<T>());
  });
}

}  // namespace

Tensor Add(const OpContext& ctx, const Tensor& a, const Tensor& b) {
  const auto layout = Derive(ctx, rules::Add, a, b);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "Add", "a", a, ctx.compute);
  CheckTensor(ctx, "Add", "b", b, a.shape(), ctx.compute);
  const Tensor out = Result(ctx, a.shape(), ctx.compute, layout.value);
  AddTo(ctx, a, b, out);
  return out;
}

Tensor AddInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b) {
  const auto layout = Derive(ctx, rules::Add, a, b);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "AddInPlace", "a", a, ctx.compute);
  CheckTensor(ctx, "AddInPlace", "b", b, a.shape(), ctx.compute);
  AddTo(ctx, a, b, a);
  return Overwritten(ctx, a, layout.value);
}

void AddMasterInPlace(const OpContext& ctx, Tensor& a, const Tensor& b) {
  const auto layout = Derive(ctx, rules::Add, a, b);
  if (!layout.known) return Forget(ctx, a);
  CheckMatrix(ctx, "AddMasterInPlace", "a", a, ctx.master());
  CheckTensor(ctx, "AddMasterInPlace", "b", b, a.shape(), ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::Add<Compute<T>>(ctx, a.Rows<Compute<T>>(), b.Rows<Compute<T>>(), a.Rows<Compute<T>>());
  });
  a = Overwritten(ctx, a, layout.value);
}

Tensor GatedResidual(const OpContext& ctx, const ResidualGate& op, const Tensor& h,
                     const Tensor& branch, const Tensor& gate) {
  const auto layout = Derive(ctx, rules::GatedResidual, h, branch, gate);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "GatedResidual", "h", h, ctx.compute);
  CheckTensor(ctx, "GatedResidual", "branch", branch, h.shape(), ctx.compute);
  CheckTensor(ctx, "GatedResidual", "gate", gate, {h.dim(1)}, ctx.master());
  const Tensor out = Result(ctx, h.shape(), ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::ResidualGateForward<T>(ctx, op, h.Rows<T>(), branch.Rows<T>(),
                                    Elements<const Compute<T>>(gate), out.Rows<T>());
  });
  return out;
}

ResidualGradients GatedResidualBackward(const OpContext& ctx, const ResidualGate& op,
                                        const Tensor& h, const Tensor& branch, const Tensor& gate,
                                        const Tensor& dout, Tensor& dgate) {
  const auto layout = Derive(ctx, rules::GatedResidualBackward, h, branch, gate, dout);
  if (!layout.known) return {.h = Unknown(ctx), .branch = Unknown(ctx)};
  CheckMatrix(ctx, "GatedResidualBackward", "h", h, ctx.compute);
  CheckTensor(ctx, "GatedResidualBackward", "branch", branch, h.shape(), ctx.compute);
  CheckTensor(ctx, "GatedResidualBackward", "gate", gate, {h.dim(1)}, ctx.master());
  CheckTensor(ctx, "GatedResidualBackward", "dout", dout, h.shape(), ctx.compute);
  CheckTensor(ctx, "GatedResidualBackward", "dgate", dgate, gate.shape(), ctx.master());
  const ResidualGradients d = {.h = Result(ctx, h.shape(), ctx.compute, layout.value.h),
                               .branch = Result(ctx, h.shape(), ctx.compute, layout.value.branch)};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::ResidualGateBackward<T>(
        ctx, op, h.Rows<T>(), branch.Rows<T>(), Elements<const Compute<T>>(gate), dout.Rows<T>(),
        d.h.Rows<T>(), d.branch.Rows<T>(), Elements<Compute<T>>(dgate));
  });
  dgate = Overwritten(ctx, dgate, layout.value.gate);
  return d;
}

Tensor SigmoidGate(const OpContext& ctx, const Tensor& x, const Tensor& gate) {
  const auto layout = Derive(ctx, rules::Gate, x, gate);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "SigmoidGate", "x", x, ctx.compute);
  CheckTensor(ctx, "SigmoidGate", "gate", gate, x.shape(), ctx.compute);
  const Tensor out = Result(ctx, x.shape(), ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::SigmoidGateForward<T>(ctx, x.Rows<T>(), gate.Rows<T>(), out.Rows<T>());
  });
  return out;
}

GateGradients SigmoidGateBackwardInPlace(const OpContext& ctx, const Tensor& x, const Tensor& gate,
                                         const Tensor& dout) {
  const auto layout = Derive(ctx, rules::GateBackward, x, gate, dout);
  if (!layout.known) return {.x = Unknown(ctx), .gate = Unknown(ctx)};
  CheckMatrix(ctx, "SigmoidGateBackwardInPlace", "x", x, ctx.compute);
  CheckTensor(ctx, "SigmoidGateBackwardInPlace", "gate", gate, x.shape(), ctx.compute);
  CheckTensor(ctx, "SigmoidGateBackwardInPlace", "dout", dout, x.shape(), ctx.compute);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::SigmoidGateBackward<T>(ctx, x.Rows<T>(), gate.Rows<T>(), dout.Rows<T>(),
                                    dout.Rows<T>(), gate.Rows<T>());
  });
  return {.x = Overwritten(ctx, dout, layout.value.x),
          .gate = Overwritten(ctx, gate, layout.value.gate)};
}

Tensor Swiglu(const OpContext& ctx, const headwise::Swiglu& op, const Tensor& gate,
              const Tensor& up) {
  const auto layout = Derive(ctx, rules::Gate, up, gate);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "Swiglu", "gate", gate, ctx.compute);
  CheckTensor(ctx, "Swiglu", "up", up, gate.shape(), ctx.compute);
  const Tensor out = Result(ctx, gate.shape(), ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::SwigluForward<T>(ctx, op, gate.Rows<T>(), up.Rows<T>(), out.Rows<T>());
  });
  return out;
}

GateGradients SwigluBackwardInPlace(const OpContext& ctx, const headwise::Swiglu& op,
                                    const Tensor& gate, const Tensor& up, const Tensor& dout) {
  const auto layout = Derive(ctx, rules::GateBackward, up, gate, dout);
  if (!layout.known) return {.x = Unknown(ctx), .gate = Unknown(ctx)};
  CheckMatrix(ctx, "SwigluBackwardInPlace", "gate", gate, ctx.compute);
  CheckTensor(ctx, "SwigluBackwardInPlace", "up", up, gate.shape(), ctx.compute);
  CheckTensor(ctx, "SwigluBackwardInPlace", "dout", dout, gate.shape(), ctx.compute);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::SwigluBackward<T>(ctx, op, gate.Rows<T>(), up.Rows<T>(), dout.Rows<T>(),
                               gate.Rows<T>(), up.Rows<T>());
  });
  return {.x = Overwritten(ctx, up, layout.value.x),
          .gate = Overwritten(ctx, gate, layout.value.gate)};
}

void Convert(const OpContext& ctx, const Tensor& from, const Tensor& to) {
  HW_CHECK(from.defined()) << "Convert: from is undefined";
  const bool narrowing = from.dtype() == ctx.master() && to.dtype() == ctx.compute;
  const bool widening = from.dtype() == ctx.compute && to.dtype() == ctx.master();
  HW_CHECK(narrowing || widening) << "Convert: from " << from.dtype() << " to " << to.dtype();
  CheckTensor(ctx, "Convert", "to", to, from.shape(), to.dtype());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (narrowing) {
        kernels::Convert<float, T>(ctx, from.Rows<float>(), to.Rows<T>());
      } else {
        kernels::Convert<T, float>(ctx, from.Rows<T>(), to.Rows<float>());
      }
    } else {
      kernels::CopyBytes(ctx, to.raw_data(), from.raw_data(), from.bytes());
    }
  });
}

void CopyRows(const OpContext& ctx, const Tensor& from, std::int64_t from_begin, const Tensor& to,
              std::int64_t to_begin, std::int64_t count) {
  CheckMatrix(ctx, "CopyRows", "from", from, from.dtype());
  CheckMatrix(ctx, "CopyRows", "to", to, from.dtype());
  CheckLength("CopyRows", "a row of to", to.dim(1), from.dim(1));
  const Tensor source = from.Slice(from_begin, count);
  const Tensor destination = to.Slice(to_begin, count);
  if (ctx.device == Device::kMeta || count == 0) return;
  if (ctx.device == Device::kCpu) {
    std::memmove(destination.raw_data(), source.raw_data(),
                 static_cast<std::size_t>(source.bytes()));
    return;
  }
  // A GPU's copy is not for overlapping rows: those go elsewhere first.
  Tensor apart = source;
  if (from.raw_data() == to.raw_data() && std::abs(to_begin - from_begin) < count) {
    apart = ctx.Empty(source.shape(), source.dtype());
    kernels::CopyBytes(ctx, apart.raw_data(), source.raw_data(), source.bytes());
  }
  kernels::CopyBytes(ctx, destination.raw_data(), apart.raw_data(), source.bytes());
}

void ScatterRows(const OpContext& ctx, const Tensor& from,
                 absl::Span<const std::int64_t> destinations, const Tensor& to) {
  CheckMatrix(ctx, "ScatterRows", "from", from, ctx.compute);
  CheckMatrix(ctx, "ScatterRows", "to", to, ctx.compute);
  CheckLength("ScatterRows", "a row of to", to.dim(1), from.dim(1));
  CheckLength("ScatterRows", "destinations", static_cast<std::int64_t>(destinations.size()),
              from.dim(0));
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::ScatterRows<T>(ctx, from.Rows<T>(), destinations, to.Rows<T>());
  });
}

}  // namespace headwise::ops
