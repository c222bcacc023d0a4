// The validator of whole programs: plays who owns which bytes. Shares nothing with the code that made the
// layout.
#include <map>

#include "base/error.h"
#include "layout/program_layout.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

class Ownership {
 public:
  Ownership(const Graph& graph, const ProgramLayout& program, const ArenaLayout& layout)
      : graph_(graph), program_(program), layout_(layout), was_written_(graph.tensors().size()) {}

  void run() {
    check_internal(program_.rows.size() == graph_.tensors().size(), "validate: not one row per tensor");
    for (size_t i = 0; i < program_.rows.size(); ++i) check_region(program_.rows[i], graph_.tensors()[i]);
    for (size_t i = 0; i < program_.rows.size(); ++i)
      if (program_.rows[i].role == Role::input) claim(static_cast<TensorId>(i), nullptr);
    for (const Op& op : graph_.ops()) play(op);
  }

 private:
  struct Owner {
    int64_t end;
    TensorId tensor;
  };

  const TableRow& row(TensorId id) const { return program_.rows[static_cast<size_t>(id)]; }

  [[noreturn]] void fail(const Op* op, const std::string& why) const {
    throw InternalError("layout of " + graph_.name() + ": " + why +
                        (op == nullptr ? "" : " at " + print_op(graph_, *op)));
  }

  void check_region(const TableRow& at, const Tensor& tensor) const {
    const bool persistent = is_persistent(tensor.role);
    const int64_t low = persistent ? 0 : layout_.persistent_bytes;
    const int64_t high = persistent ? layout_.persistent_bytes : layout_.arena_bytes();
    if (at.bytes != tensor.bytes() || at.offset < low || at.offset + at.bytes > high)
      fail(nullptr, tensor.name + " does not lie in its region");
    if (at.offset % kArenaAlignment != 0) fail(nullptr, tensor.name + " is not aligned");
  }

  // The tensor becomes the owner of its bytes; whoever had some of them has lost its value.
  void claim(TensorId id, const Op* op) {
    const TableRow& at = row(id);
    if (at.bytes == 0 || is_persistent(at.role)) return;
    auto next = owners_.lower_bound(at.offset);
    if (next != owners_.begin() && std::prev(next)->second.end > at.offset) --next;
    while (next != owners_.end() && next->first < at.offset + at.bytes) {
      if (op == nullptr)
        fail(nullptr, "inputs " + at.name + " and " + row(next->second.tensor).name + " overlap");
      next = owners_.erase(next);
    }
    owners_[at.offset] = {at.offset + at.bytes, id};
  }

  void expect_alive(TensorId id, const Op& op) const {
    const TableRow& at = row(id);
    if (at.bytes == 0 || is_persistent(at.role)) return;
    const auto found = owners_.find(at.offset);
    if (found == owners_.end() || found->second.tensor != id)
      fail(&op, at.name + " is read after its bytes were taken");
  }

  bool overlap(TensorId a, TensorId b) const {
    return row(a).bytes > 0 && row(b).bytes > 0 && row(a).offset < row(b).offset + row(b).bytes &&
           row(b).offset < row(a).offset + row(a).bytes;
  }

  bool allowed(const Op& op, size_t output, size_t input) const {
    for (const Reuse& reuse : rule_of(op.kind).reuse) {
      if (static_cast<size_t>(reuse.output) != output || static_cast<size_t>(reuse.input) != input) continue;
      return row(op.outputs[output]).offset == row(op.inputs[input]).offset;
    }
    return false;
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
          fail(&op, row(written[a]).name + " and " + row(written[b]).name + " overlap");
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNoTensor) continue;
      if (op.scratch != kNoTensor && overlap(op.scratch, op.inputs[i]))
        fail(&op, "the workspace overlaps an input");
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const TensorId output = op.outputs[o];
        if (output == kNoTensor || output == op.inputs[i] || !overlap(output, op.inputs[i])) continue;
        if (!allowed(op, o, i)) fail(&op, row(output).name + " overlaps the input " + row(op.inputs[i]).name);
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
  std::vector<bool> was_written_;    // such an output is updated in place: its bytes must still be there
  std::map<int64_t, Owner> owners_;  // by first byte; ranges do not overlap
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
