// LayoutChecker: follows one forward and backward pass over types, by a plan, and collects what is
// wrong with it.
//
// Code that runs on it hands types through rules, asks it for leaves, lets it take the steps of
// boundaries, and shows it every gradient. It needs no ranks, no data and no memory.
//
//   void Ffn(LayoutChecker& check) {                              // x is I between layers
//     const auto module = check.Enter("ffn");
//     const LayoutType x = check.Input("x", {tokens, width}, DType::kBF16);
//     const LayoutType w1 = check.Parameter("w1", {ffn, width}, DType::kF32);
//     const LayoutType in = check.Cross("in", x);                 // I -> R, as the plan says
//     const LayoutType h = check(rules::Linear(in, w1, nullptr));
//     ...
//     check.ParameterGradient("w1", check(rules::LinearBackwardWeight(dh, in, DType::kF32)));
//     check.InputGradient("x", check.CrossBackward("in", din));
//   }
//   LayoutChecker check(mesh, plan);
//   Ffn(check);
//   if (!check.status().ok()) ...
//
// After an error the result is undefined, rules hand that through, and checks of it pass: each
// mistake is reported once. Names are paths of the modules entered.
//
// Not thread-safe.
#ifndef HEADWISE_CORE_PARALLEL_LAYOUT_CHECKER_H_
#define HEADWISE_CORE_PARALLEL_LAYOUT_CHECKER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/mesh.h"

namespace headwise {

// One step that a boundary took.
struct Communication {
  std::string boundary;  // full path
  Step step;
  bool backward = false;
  std::int64_t bytes = 0;  // sent by each rank
};

struct LayoutMistake {
  std::string module;   // full path of where it was found: a module, a leaf or a boundary
  absl::Status status;  // layout_error.h
  // How many entries of the plan had been asked for by then.
  std::size_t consulted = 0;
  // "layers.0.attention: linear: axis tp: ...".
  std::string ToString() const;
};

class LayoutChecker {
 public:
  LayoutChecker(Mesh mesh, LayoutPlan plan) : mesh_(std::move(mesh)), plan_(std::move(plan)) {}
  LayoutChecker(const LayoutChecker&) = delete;
  LayoutChecker& operator=(const LayoutChecker&) = delete;

  const Mesh& mesh() const { return mesh_; }
  const LayoutPlan& plan() const { return plan_; }

  // Leaves the module when it goes out of scope.
  class Module {
   public:
    Module(LayoutChecker& checker, absl::string_view name);
    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

   private:
    LayoutChecker& checker_;
    std::size_t length_;
  };
  Module Enter(absl::string_view name) { return {*this, name}; }
  // The full path of a leaf or boundary of the module that the code is in.
  std::string Path(absl::string_view name) const;

  // The type of a leaf, as the plan says. A parameter's gradient is expected by the end; an input
  // that is declared again takes the earlier one's place.
  LayoutType Parameter(absl::string_view name, const std::vector<Dim>& shape, DType dtype);
  LayoutType Input(absl::string_view name, const std::vector<Dim>& shape, DType dtype);

  // The value of a rule's result; an error is noted, and gives a value of undefined types.
  template <typename T>
  T operator()(absl::StatusOr<T> result) {
    if (result.ok()) return *std::move(result);
    Note(result.status());
    return T();
  }

  // A step that was taken.
  struct Taken {
    Step step;
    LayoutType from, to;
  };
  // x after the plan's steps at this boundary, and the gradient before them. A boundary is crossed
  // backward after it was crossed forward; either may happen again (activations that the backward
  // computes once more). `taken`, if not null, gets the steps, for those who move data.
  LayoutType Cross(absl::string_view boundary, const LayoutType& x,
                   std::vector<Taken>* taken = nullptr);
  LayoutType CrossBackward(absl::string_view boundary, const LayoutType& gradient,
                           std::vector<Taken>* taken = nullptr);

  // For code that passes again and again: forgets what the last pass crossed, sent and reduced;
  // leaves stay, inputs may be declared anew. From EnterBackward() to the next BeginPass() every
  // step counts as one of the backward.
  void BeginPass();
  void EnterBackward() { backward_ = true; }

  // The gradients, compared with the duals of their values. A parameter's goes into the gradient
  // plan, with the reduction that the plan names or that it needs; the gradients of several uses
  // are added first.
  void ParameterGradient(absl::string_view name, const LayoutType& gradient);
  void InputGradient(absl::string_view name, const LayoutType& gradient);

  // Notes a mistake, with the module's path; OK is nothing.
  void Note(const absl::Status& status);
  // To call at the end: notes parameters that no gradient came for.
  void Finish();

  // For tests that run what is refused: after a mistake is noted the pass goes on as if the types
  // had fitted, wherever shapes allow. Not to be trusted with anything but a wrong result.
  void set_relaxed(bool relaxed) { relaxed_ = relaxed; }
  bool relaxed() const { return relaxed_; }

  // OK, or the first mistake.
  absl::Status status() const;
  const std::vector<LayoutMistake>& mistakes() const { return mistakes_; }
  const std::vector<Communication>& communication() const { return communication_; }
  // Every boundary crossed in the pass, in order, with or without steps.
  struct Crossing {
    std::string boundary;  // full path
    bool backward = false;
    LayoutType before, after;
  };
  const std::vector<Crossing>& crossings() const { return crossings_; }
  const GradientPlan& gradient_plan() const { return gradient_plan_; }
  // Bytes that each rank sends in one step: boundaries, forward and backward, and gradients.
  std::int64_t bytes_sent() const;
  // Every leaf's full path and type, in order.
  const std::vector<std::pair<std::string, LayoutType>>& leaves() const { return leaves_; }

  // An entry of the plan that was asked for, whether or not the plan has it, and the rank of the
  // tensor.
  struct Consulted {
    PlanPart part;
    std::string name;
    int rank = 0;
  };
  const std::vector<Consulted>& consulted() const { return consulted_; }

 private:
  // Of a leaf or boundary, whose path says more than the module's.
  void NoteAt(const std::string& path, const absl::Status& status);
  LayoutType Leaf(const std::string& path, const std::vector<Dim>& shape, DType dtype);
  // One step, noted and put into `taken`.
  LayoutType Take(const std::string& path, const Step& step, LayoutType x, bool backward,
                  std::vector<Taken>& taken);

  Mesh mesh_;
  LayoutPlan plan_;
  std::string path_;
  std::map<std::string, LayoutType, std::less<>> values_;  // leaves
  std::map<std::string, bool, std::less<>> parameters_;    // path -> whether its gradient came
  std::map<std::string, std::vector<Taken>, std::less<>> crossed_;  // boundary -> its steps
  std::vector<std::pair<std::string, LayoutType>> leaves_;
  std::vector<Consulted> consulted_;
  std::vector<LayoutMistake> mistakes_;
  std::vector<Communication> communication_;
  std::vector<Crossing> crossings_;
  GradientPlan gradient_plan_;
  bool passed_ = false;    // BeginPass() was called
  bool backward_ = false;  // EnterBackward() was called
  bool relaxed_ = false;
};

// A change of one entry of a plan under which everything is accepted.
struct VerifiedFix {
  PlanEntry edit;
  std::int64_t bytes_sent = 0;  // of the whole, per step and rank, with the edit
  // "forward layers.*.attention.in: convert@tp -> R (1024 bytes a step)".
  std::string ToString() const;
};

// Fixes of the first mistake of `failed`, a checker on which `model` has run: single edits of the
// entries that it had asked for last, of the leaves of the mistake's module and of those of none,
// each tried by running `model` again, cheapest first, at most `most` of them. Entries of numbered
// modules are edited for all of them ("layers.*").
std::vector<VerifiedFix> FindFixes(const LayoutChecker& failed,
                                   absl::FunctionRef<void(LayoutChecker&)> model,
                                   std::size_t most = 3);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_LAYOUT_CHECKER_H_
