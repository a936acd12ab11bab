#include "core/parallel/index_rule.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

bool SizeOne(const ShardedDim& dim) {
  return std::all_of(dim.begin(), dim.end(),
                     [](const ShardedFactor& f) { return f.factor.size == 1 && f.axes.empty(); });
}

// "dimension t [T=64]".
std::string Describe(char letter, const ShardedDim& dim) {
  std::string text = absl::StrCat("dimension ", absl::string_view(&letter, 1), " [");
  for (std::size_t i = 0; i < dim.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : " ", dim[i].factor.ToString());
  }
  return absl::StrCat(text, "]");
}

class Derivation {
 public:
  Derivation(const IndexedOp& op, absl::Span<const Operand> operands)
      : op_(op), operands_(operands) {
    const std::vector<absl::string_view> sides = absl::StrSplit(op.letters, "->");
    HW_CHECK_EQ(sides.size(), 2) << op.letters;
    letters_ = absl::StrSplit(sides[0], ',');
    result_ = sides[1];
    HW_CHECK_EQ(letters_.size(), operands.size()) << op.op << ": " << op.letters;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      HW_CHECK_EQ(static_cast<int>(letters_[i].size()), operands[i].type.rank())
          << op.op << ": " << op.letters << ", operand " << operands[i].name << " "
          << operands[i].type.ToString();
      for (const char letter : letters_[i]) {
        HW_CHECK(op.kind == OpKind::kLinear || op.kind == OpKind::kMultilinear ||
                 result_.find(letter) != absl::string_view::npos ||
                 op.whole.find(letter) != absl::string_view::npos)
            << op.op << ": " << op.letters << " sums in a " << Name(op.kind) << " operation";
      }
    }
  }

  absl::StatusOr<LayoutType> Run() {
    HW_RETURN_IF_ERROR(CheckMeshes());
    HW_RETURN_IF_ERROR(CheckShapes());
    const LayoutType& first = operands_[0].type;
    LayoutMaker maker(first.mesh(), first.view(), op_.dtype.value_or(first.dtype()));
    for (int axis = 0; axis < static_cast<int>(maker.types.size()); ++axis) {
      HW_ASSIGN_OR_RETURN(maker.types[axis], Axis(axis));
    }
    HW_RETURN_IF_ERROR(CheckShares());
    for (const char letter : result_) maker.dims.push_back(DimOf(letter));
    return std::move(maker).Make();
  }

 private:
  // The dimension of operand i under the letter; null where it lacks it or has size 1 there.
  const ShardedDim* Find(std::size_t i, char letter) const {
    const std::size_t at = letters_[i].find(letter);
    if (at == absl::string_view::npos) return nullptr;
    const ShardedDim& dim = operands_[i].type.dims()[at];
    return SizeOne(dim) ? nullptr : &dim;
  }

  ShardedDim DimOf(char letter) const {
    bool known = false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (const ShardedDim* dim = Find(i, letter)) return *dim;
      known = known || letters_[i].find(letter) != absl::string_view::npos;
    }
    HW_CHECK(known) << op_.op << ": " << op_.letters;
    return {};
  }

  absl::Status Error(int axis, std::size_t a, std::size_t b, const std::string& why) const {
    std::vector<Operand> named = {operands_[a]};
    if (a != b) named.push_back(operands_[b]);
    const LayoutType& type = operands_[a].type;
    return LayoutError(op_.op, axis < 0 ? "" : type.mesh().Axes(type.view())[axis].name, named,
                       why);
  }

  absl::Status CheckMeshes() const {
    for (std::size_t i = 1; i < operands_.size(); ++i) {
      const LayoutType &a = operands_[0].type, &b = operands_[i].type;
      HW_CHECK(a.mesh() == b.mesh()) << op_.op << ": operands of two meshes";
      if (a.view() != b.view()) {
        return Error(
            -1, 0, i,
            absl::StrCat("one is typed in the ", Name(a.view()),
                         " view of the mesh, the "
                         "other in the ",
                         Name(b.view()), " view; reinterpret_mesh goes from one to the other"));
      }
    }
    return absl::OkStatus();
  }

  // Under one letter, the same factors.
  absl::Status CheckShapes() const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      for (const char letter : letters_[i]) {
        const ShardedDim* dim = Find(i, letter);
        if (dim == nullptr) continue;
        for (std::size_t j = 0; j < i; ++j) {
          const ShardedDim* other = Find(j, letter);
          if (other == nullptr) continue;
          if (!std::equal(dim->begin(), dim->end(), other->begin(), other->end(),
                          [](const ShardedFactor& a, const ShardedFactor& b) {
                            return a.factor == b.factor;
                          })) {
            return Error(-1, j, i,
                         absl::StrCat(Describe(letter, *other), " and ", Describe(letter, *dim),
                                      " must be the same, in the same order"));
          }
          break;
        }
      }
    }
    return absl::OkStatus();
  }

  // Under one letter, the same axes in the same order on the same factors.
  absl::Status CheckShares() const {
    for (std::size_t i = 1; i < operands_.size(); ++i) {
      for (const char letter : letters_[i]) {
        const ShardedDim* dim = Find(i, letter);
        for (std::size_t j = 0; dim != nullptr && j < i; ++j) {
          const ShardedDim* other = Find(j, letter);
          if (other == nullptr || *other == *dim) continue;
          for (std::size_t f = 0; f < dim->size(); ++f) {
            if ((*dim)[f] == (*other)[f]) continue;
            const std::vector<int>& axes =
                (*dim)[f].axes.empty() ? (*other)[f].axes : (*dim)[f].axes;
            return Error(axes[0], j, i,
                         absl::StrCat(Describe(letter, *dim),
                                      " is cut differently: another factor, other sizes, or the "
                                      "axes in another order, so rank for rank the shares do not "
                                      "match"));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<AxisType> Axis(int axis) const {
    constexpr std::size_t kNone = ~std::size_t{0};
    std::vector<AxisType> types;
    std::size_t sharded = kNone;
    char letter = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const LayoutType& type = operands_[i].type;
      types.push_back(type.axis_type(axis));
      if (types.back() != AxisType::kShard) continue;
      const char found = letters_[i][static_cast<std::size_t>(type.ShardedBy(axis))];
      if (sharded == kNone) {
        sharded = i;
        letter = found;
      } else if (found != letter) {
        return Error(axis, sharded, i,
                     absl::StrCat("sharded along ", Describe(letter, DimOf(letter)), " and along ",
                                  Describe(found, DimOf(found)),
                                  ": a rank would see only the pairs of its own two shares"));
      }
    }
    const JoinResult join = JoinAxis(op_.kind, types, op_.scalar);
    if (!join.ok) {
      const auto [a, b] = Culprits(types);
      return Error(axis, a, b, std::string(join.why));
    }
    if (sharded == kNone) return join.type;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (types[i] == AxisType::kShard || Find(i, letter) == nullptr) continue;
      return Error(
          axis, std::min(i, sharded), std::max(i, sharded),
          absl::StrCat(operands_[i].name, " has all of ", Describe(letter, *Find(i, letter)),
                       " where ", operands_[sharded].name,
                       " has a share: both must be sharded alike, or neither"));
    }
    if (op_.whole.find(letter) != absl::string_view::npos) {
      return Error(
          axis, sharded, sharded,
          absl::StrCat("the operation looks at all of ", Describe(letter, *Find(sharded, letter)),
                       " at once, and a rank has a share of it"));
    }
    if (result_.find(letter) != absl::string_view::npos) return AxisType::kShard;
    return AxisType::kPartial;
  }

  // Two operands that show the conflict; twice the same for one that is refused by itself.
  std::pair<std::size_t, std::size_t> Culprits(const std::vector<AxisType>& types) const {
    const std::size_t none = types.size();
    const auto first = [&](auto&& wanted) {
      return static_cast<std::size_t>(std::find_if(types.begin(), types.end(), wanted) -
                                      types.begin());
    };
    const auto pair = [&](std::size_t a, std::size_t b) {
      return b == none ? std::pair(a, a) : std::pair(std::min(a, b), std::max(a, b));
    };
    using enum AxisType;
    if (const std::size_t i = first([](AxisType t) { return t == kInvariant; }); i != none) {
      return pair(i, first([](AxisType t) { return t != kInvariant; }));
    }
    const std::size_t shard = first([](AxisType t) { return t == kShard; });
    const std::size_t varying = first([](AxisType t) { return t == kVarying; });
    const std::size_t partial = first([](AxisType t) { return t == kPartial; });
    if (partial == none) return pair(varying, shard);
    if (shard != none || varying != none) return pair(partial, std::min(shard, varying));
    if (op_.kind == OpKind::kNonlinear) return pair(partial, none);
    if (op_.kind == OpKind::kLinear) {
      return pair(partial, first([](AxisType t) { return t != kPartial; }));
    }
    for (std::size_t i = partial + 1; i < none; ++i) {
      if (types[i] == kPartial) return pair(partial, i);
    }
    return pair(partial, none);
  }

  const IndexedOp& op_;
  absl::Span<const Operand> operands_;
  std::vector<absl::string_view> letters_;
  absl::string_view result_;
};

}  // namespace

absl::StatusOr<LayoutType> DeriveIndexed(const IndexedOp& op, absl::Span<const Operand> operands) {
  HW_CHECK(!operands.empty()) << op.op;
  for (const Operand& operand : operands) {
    if (!operand.type.defined()) return LayoutType();
  }
  return Derivation(op, operands).Run();
}

absl::StatusOr<LayoutType> DeriveElementwise(absl::string_view op, OpKind kind,
                                             absl::Span<const Operand> operands) {
  constexpr absl::string_view kLetters = "abcdefgh";
  std::string letters;
  const int rank = operands[0].type.defined() ? operands[0].type.rank() : 0;
  for (std::size_t i = 0; i <= operands.size(); ++i) {
    absl::StrAppend(&letters,
                    i == 0                 ? ""
                    : i == operands.size() ? "->"
                                           : ",",
                    kLetters.substr(0, static_cast<std::size_t>(rank)));
  }
  return DeriveIndexed({.op = op, .letters = letters, .kind = kind}, operands);
}

}  // namespace headwise
