// The validator of whole programs: plays who owns which bytes. Shares nothing with the code that made the
// layout.
#include <array>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "layout/program_layout.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// The transfers that are under way, from each one's start to its wait.
class Transfers {
 public:
  explicit Transfers(const Graph& graph) : states_(graph.tensors().size()) {}

  [[nodiscard]] bool is_written(TensorId id) const { return at(id).writes > 0; }
  [[nodiscard]] bool is_used(TensorId id) const { return at(id).writes + at(id).reads > 0; }
  // The transfer whose copy this is; nullptr: none is under way.
  [[nodiscard]] const Op* moving(TensorId copy) const { return at(copy).transfer; }
  [[nodiscard]] int64_t under_way() const { return under_way_; }

  void start(const Op& transfer) {
    at(copy_of(transfer)).transfer = &transfer;
    count(transfer, 1);
  }
  void end(TensorId copy) {
    count(*at(copy).transfer, -1);
    at(copy).transfer = nullptr;
  }

 private:
  struct State {
    int32_t reads = 0, writes = 0;  // by transfers under way
    const Op* transfer = nullptr;
  };
  [[nodiscard]] const State& at(TensorId id) const { return states_[static_cast<size_t>(id)]; }
  State& at(TensorId id) { return states_[static_cast<size_t>(id)]; }

  void count(const Op& transfer, int32_t change) {
    at(transfer.inputs.front()).reads += change;
    at(transfer.outputs.front()).writes += change;
    under_way_ += change;
  }

  std::vector<State> states_;
  int64_t under_way_ = 0;
};

class Ownership {
 public:
  Ownership(const Graph& graph, const ProgramLayout& program, const ArenaLayout& layout)
      : graph_(graph),
        program_(program),
        layout_(layout),
        was_written_(graph.tensors().size()),
        transfers_(graph) {}

  void run() {
    check_internal(program_.rows.size() == graph_.tensors().size(), "validate: not one row per tensor");
    for (size_t i = 0; i < program_.rows.size(); ++i) check_region(program_.rows[i], graph_.tensors()[i]);
    for (size_t i = 0; i < program_.rows.size(); ++i)
      if (program_.rows[i].role == Role::input) claim(static_cast<TensorId>(i), nullptr);
    for (const Op& op : graph_.ops()) {
      play_transfers(op);
      play(op);
    }
    if (transfers_.under_way() > 0) fail(nullptr, "a transfer has no wait");
  }

 private:
  struct Owner {
    int64_t end;
    TensorId tensor;
  };

  const TableRow& row(TensorId id) const { return program_.rows[static_cast<size_t>(id)]; }

  [[noreturn]] void fail(const Op* op, const std::string& why) const {
    throw InternalError(formatted("layout of {}: {}{}", graph_.name(), why,
                                  op == nullptr ? "" : " at " + print_op(graph_, *op)));
  }

  void check_region(const TableRow& at, const Tensor& tensor) const {
    const bool persistent = is_persistent(tensor.role);
    const ArenaSizes sizes = layout_.sizes(tensor.space);
    const int64_t low = persistent ? 0 : sizes.persistent_bytes;
    const int64_t high = persistent ? sizes.persistent_bytes : sizes.total();
    if (at.space != tensor.space) fail(nullptr, tensor.name + " lies in another space");
    if (at.bytes != tensor.bytes() || at.offset < low || at.offset + at.bytes > high)
      fail(nullptr, tensor.name + " does not lie in its region");
    if (at.offset % kArenaAlignment != 0) fail(nullptr, tensor.name + " is not aligned");
  }

  // The tensor becomes the owner of its bytes; tensors that had some of them have lost their values.
  void claim(TensorId id, const Op* op) {
    const TableRow& at = row(id);
    if (at.bytes == 0 || is_persistent(at.role)) return;
    Owners& owners = owners_[index(at.space)];
    auto next = owners.lower_bound(at.offset);
    if (next != owners.begin() && std::prev(next)->second.end > at.offset) --next;
    while (next != owners.end() && next->first < at.offset + at.bytes) {
      const TensorId loser = next->second.tensor;
      if (loser != id && transfers_.is_used(loser))
        fail(op, formatted("the bytes of {} are taken while a transfer uses them", row(loser).name));
      if (op == nullptr) fail(nullptr, formatted("inputs {} and {} overlap", at.name, row(loser).name));
      next = owners.erase(next);
    }
    owners[at.offset] = {at.offset + at.bytes, id};
  }

  void expect_alive(TensorId id, const Op& op) const {
    const TableRow& at = row(id);
    if (at.bytes == 0 || is_persistent(at.role)) return;
    const Owners& owners = owners_[index(at.space)];
    const auto found = owners.find(at.offset);
    if (found == owners.end() || found->second.tensor != id)
      fail(&op, at.name + " is read after its bytes were taken");
  }

  bool overlap(TensorId a, TensorId b) const {
    return row(a).space == row(b).space && row(a).bytes > 0 && row(b).bytes > 0 &&
           row(a).offset < row(b).offset + row(b).bytes && row(b).offset < row(a).offset + row(a).bytes;
  }

  bool allowed(const Op& op, size_t output, size_t input) const {
    for (const Reuse& reuse : rule_of(op.kind).reuse) {
      if (reuse.output != output || reuse.input != input) continue;
      return row(op.outputs[output]).offset == row(op.inputs[input]).offset;
    }
    return false;
  }

  // Transfers complete in the order in which they start, so that among each other they need no waits.
  void play_transfers(const Op& op) {
    if (op.kind == OpKind::fetch || op.kind == OpKind::store) {
      const TensorId copy = copy_of(op);
      if (transfers_.moving(copy) != nullptr || (op.kind == OpKind::fetch && transfers_.is_used(copy)))
        fail(&op, row(copy).name + " is still being moved");
      transfers_.start(op);
      return;
    }
    if (op.kind == OpKind::fetch_wait || op.kind == OpKind::store_wait) {
      const Op* transfer = transfers_.moving(copy_of(op));
      const OpKind expected = op.kind == OpKind::fetch_wait ? OpKind::fetch : OpKind::store;
      if (transfer == nullptr || transfer->kind != expected)
        fail(&op, "nothing of this kind moves " + row(copy_of(op)).name);
      transfers_.end(copy_of(op));
      return;
    }
    for (const TensorId id : op.inputs)
      if (id != kNoTensor && transfers_.is_written(id))
        fail(&op, row(id).name + " is read before its transfer is waited for");
    for (const TensorId id : op.outputs)
      if (id != kNoTensor && transfers_.is_used(id))
        fail(&op, row(id).name + " is written before its transfer is waited for");
  }

  void play(const Op& op) {
    for (const TensorId id : op.inputs)
      if (id != kNoTensor) expect_alive(id, op);
    for (const TensorId id : op.outputs)
      if (id != kNoTensor && was_written_[static_cast<size_t>(id)]) expect_alive(id, op);
    std::vector<TensorId> written;
    if (op.scratch != kNoTensor) written.push_back(op.scratch);
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) written.push_back(id);
    for (size_t a = 0; a < written.size(); ++a)
      for (size_t b = a + 1; b < written.size(); ++b)
        if (overlap(written[a], written[b]))
          fail(&op, formatted("{} and {} overlap", row(written[a]).name, row(written[b]).name));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNoTensor) continue;
      if (op.scratch != kNoTensor && overlap(op.scratch, op.inputs[i]))
        fail(&op, "the workspace overlaps an input");
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const TensorId output = op.outputs[o];
        if (output == kNoTensor || output == op.inputs[i] || !overlap(output, op.inputs[i])) continue;
        if (!allowed(op, o, i))
          fail(&op, formatted("{} overlaps the input {}", row(output).name, row(op.inputs[i]).name));
      }
    }
    for (const TensorId id : written) {
      claim(id, &op);
      was_written_[static_cast<size_t>(id)] = true;
    }
  }

  const Graph& graph_;
  const ProgramLayout& program_;
  const ArenaLayout& layout_;
  std::vector<bool> was_written_;  // such an output is updated in place: its bytes must still be there
  using Owners = std::map<int64_t, Owner>;  // by first byte; ranges do not overlap
  std::array<Owners, kSpaces.size()> owners_;
  Transfers transfers_;
};

}  // namespace

void validate(std::span<const Graph> programs, const ArenaLayout& layout) {
  check_internal(programs.size() == layout.programs.size(), "validate: not one layout per program");
  for (size_t i = 0; i < programs.size(); ++i) {
    verify(programs[i]);
    Ownership(programs[i], layout.programs[i], layout).run();
  }
}

}  // namespace plimsoll
