#include "graph/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "graph/name_ending.h"
#include "graph/op_kind.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kNumOpKinds> kOpNames = {
#define OP(name, ...) #name,
#include "ops/ops.def"
#undef OP
};

constexpr std::array<std::string_view, 10> kRoleNames = {"frozen",     "trainable", "master", "gradient",
                                                         "state",      "kv_cache",  "metric", "input",
                                                         "activation", "scratch"};
constexpr std::array<std::string_view, 3> kSpaceNames = {"device", "host", "disk"};
constexpr std::array<std::string_view, 3> kStageNames = {"forward", "backward", "update"};

template <typename E, size_t N>
E parse_enum(const std::array<std::string_view, N>& names, std::string_view text, const char* what) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == text) return static_cast<E>(i);
  throw UsageError(formatted("'{}' is no {}", text, what));
}

template <typename Entries>
auto place_of(Entries& entries, std::string_view name) {
  return std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const Attrs::Entry& entry, std::string_view n) { return entry.first.compare(n) < 0; });
}

// The place in an index of the tensor of that name, or of the free slot for it.
template <typename Text>
size_t place_in(const std::vector<TensorId>& index, const std::vector<Tensor>& tensors, size_t hash,
                const Text& name) {
  size_t at = hash & (index.size() - 1);
  while (index[at] != kNoTensor && tensors[static_cast<size_t>(index[at])].name != name)
    at = (at + 1) & (index.size() - 1);
  return at;
}

template <typename T>
const T& attr(const Op& op, std::string_view name) {
  const auto found = op.attrs.find(name);
  if (found == op.attrs.end() || !std::holds_alternative<T>(found->second)) {
    throw InternalError(
        formatted("{} in {}: no attribute '{}' of that type", to_string(op.kind), op.scope, name));
  }
  return std::get<T>(found->second);
}

}  // namespace

std::string_view to_string(OpKind kind) { return kOpNames[static_cast<size_t>(kind)]; }
OpKind parse_op_kind(std::string_view name) { return parse_enum<OpKind>(kOpNames, name, "op"); }
std::string_view to_string(Role role) { return kRoleNames[static_cast<size_t>(role)]; }
Role parse_role(std::string_view text) { return parse_enum<Role>(kRoleNames, text, "tensor role"); }
std::string_view to_string(Space space) { return kSpaceNames[index(space)]; }
bool is_persistent(Role role) { return role <= Role::metric; }
std::string_view to_string(Stage stage) { return kStageNames[static_cast<size_t>(stage)]; }
Stage parse_stage(std::string_view text) { return parse_enum<Stage>(kStageNames, text, "stage"); }

const std::vector<Attrs::Entry>& Attrs::entries() const {
  static const std::vector<Entry> kNone;
  return entries_ == nullptr ? kNone : *entries_;
}

std::vector<Attrs::Entry>& Attrs::own() {
  if (entries_ == nullptr || entries_.use_count() > 1)
    entries_ = std::make_shared<std::vector<Entry>>(entries());
  return *entries_;
}

std::vector<Attrs::Entry>::const_iterator Attrs::find(std::string_view name) const {
  // A handful of names, of different lengths or beginnings for the most part.
  const std::vector<Entry>& all = entries();
  return std::ranges::find_if(all, [name](const Entry& entry) {
    const std::string& known = entry.first;
    return known.size() == name.size() && (name.empty() || known.front() == name.front()) && known == name;
  });
}

Attrs::Attrs(std::initializer_list<Entry> entries) {
  if (entries.size() == 0) return;
  entries_ = std::make_shared<std::vector<Entry>>(entries);
  if (!std::ranges::is_sorted(*entries_, {}, &Entry::first)) std::ranges::sort(*entries_, {}, &Entry::first);
}

AttrValue& Attrs::operator[](std::string_view name) {
  std::vector<Entry>& entries = own();
  auto found = place_of(entries, name);
  if (found == entries.end() || found->first != name)
    found = entries.insert(found, Entry{std::string(name), AttrValue()});
  return found->second;
}

bool Attrs::emplace(std::string name, AttrValue value) {
  if (contains(name)) return false;
  std::vector<Entry>& entries = own();
  const auto place = place_of(entries, name);
  entries.insert(place, Entry{std::move(name), std::move(value)});
  return true;
}

int64_t Op::attr_int(std::string_view name) const { return attr<int64_t>(*this, name); }
double Op::attr_float(std::string_view name) const { return attr<double>(*this, name); }
std::string Op::attr_text(std::string_view name) const { return attr<std::string>(*this, name); }

AxisId Graph::add_axis(std::string name) {
  check_internal(axes_.size() < kMostAxes, "a program has too many token axes");
  axes_.push_back(std::move(name));
  return static_cast<AxisId>(axes_.size() - 1);
}

std::string Graph::axis_input(AxisId axis, std::string_view input) const {
  return (axis == kFirstAxis ? "" : axes_[static_cast<size_t>(axis)] + ".") + std::string(input);
}

BlockId Graph::add_block(BlockInfo block) {
  blocks_.push_back(std::move(block));
  return static_cast<BlockId>(blocks_.size()) - 1;
}

std::vector<Stack> Graph::stacks() const {
  std::vector<Stack> stacks;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i == 0 || blocks_[i].kind != blocks_[i - 1].kind) stacks.push_back({static_cast<BlockId>(i), 0});
    ++stacks.back().count;
  }
  return stacks;
}

TensorId Graph::add_tensor(Tensor tensor) {
  if (2 * tensors_.size() >= by_name_.size()) grow_index();
  const auto id = static_cast<TensorId>(tensors_.size());
  TensorId& place = by_name_[place_in(by_name_, tensors_, tensor.name.hash(), tensor.name)];
  if (place != kNoTensor)
    throw InternalError(formatted("graph {}: two tensors named {}", name_, tensor.name));
  place = id;
  tensors_.push_back(std::move(tensor));
  return id;
}

void Graph::grow_index() {
  by_name_.assign(std::max<size_t>(64, 2 * by_name_.size()), kNoTensor);
  for (size_t i = 0; i < tensors_.size(); ++i)
    by_name_[place_in(by_name_, tensors_, tensors_[i].name.hash(), tensors_[i].name)] =
        static_cast<TensorId>(i);
}

TensorId Graph::find(std::string_view name) const {
  return by_name_.empty() ? kNoTensor : by_name_[place_in(by_name_, tensors_, Name::hash_of(name), name)];
}

bool Graph::contains(const Name& name) const {
  return !by_name_.empty() && by_name_[place_in(by_name_, tensors_, name.hash(), name)] != kNoTensor;
}

Name Graph::fresh_name(const Name& base) const {
  static NameEnding second(".2"), third(".3");
  if (!contains(base)) return base;
  Name name = second.behind(base);
  if (contains(name)) name = third.behind(base);
  for (int suffix = 4; contains(name); ++suffix) name = formatted("{}.{}", base, suffix);
  return name;
}

}  // namespace plimsoll
