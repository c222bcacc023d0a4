#include "passes/transfers.h"

#include "graph/name_ending.h"
#include "graph/op_kind.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

Op transfer(OpKind kind, const Op& partner) {
  Op op;
  op.kind = kind;
  op.scope = partner.scope;
  op.stage = partner.stage;
  op.block = partner.block;
  op.axis = partner.axis;
  return op;
}

void append_wait(Graph& graph, OpKind kind, TensorId copy, const Op& partner) {
  Op wait = transfer(kind, partner);
  wait.inputs = wait.outputs = {copy};
  graph.ops().push_back(std::move(wait));  // its rule makes nothing
}

}  // namespace

TensorId append_fetch(Graph& graph, TensorId offloaded, ElementRange range, const Name& copy_name,
                      const Op& reader, int64_t piece) {
  const Tensor& whole = graph.tensor(offloaded);
  const bool is_whole = range.elements == whole.shape.elements();
  const TensorId copy =
      graph.add_tensor({graph.fresh_name(copy_name), is_whole ? whole.shape : Shape{range.elements},
                        whole.dtype, Role::activation, Space::device, whole.block});
  Op fetch = transfer(OpKind::fetch, reader);
  fetch.inputs = {offloaded};
  fetch.outputs = {copy};
  fetch.attrs = {{"first", range.first}, {"elements", range.elements}};
  if (piece > 0)
    fetch.attrs["piece"] = piece, fetch.attrs["whole"] = graph.tensor(offloaded).shape.elements();
  emit(graph, std::move(fetch), "");
  append_wait(graph, OpKind::fetch_wait, copy, reader);
  return copy;
}

TensorId append_fetch(Graph& graph, TensorId offloaded, const Name& copy_name, const Op& reader) {
  return append_fetch(graph, offloaded, {0, graph.tensor(offloaded).shape.elements()}, copy_name, reader);
}

void append_store(Graph& graph, TensorId copy, TensorId offloaded, int64_t first, const Op& writer,
                  int64_t piece) {
  Op store = transfer(OpKind::store, writer);
  store.inputs = {copy};
  store.outputs = {offloaded};
  static const Attrs kFromTheStart = {{"first", int64_t{0}}};
  store.attrs = first == 0 ? kFromTheStart : Attrs{{"first", first}};
  if (piece > 0)
    store.attrs = {{"first", first},
                   {"elements", graph.tensor(copy).shape.elements()},
                   {"piece", piece},
                   {"whole", graph.tensor(offloaded).shape.elements()}};
  emit(graph, std::move(store), "");
  append_wait(graph, OpKind::store_wait, copy, writer);
}

int32_t StretchCounter::next(const Op& op) {
  if (op.stage == Stage::update) return ++updates_;
  if (op.block != block_ || op.stage != stage_) ++blocks_;
  block_ = op.block;
  stage_ = op.stage;
  return blocks_;
}

Graph copy_for_readers(Graph graph, const std::vector<char>& marked, const AppendCopy& append) {
  struct Latest {
    int32_t stretch = -1;
    TensorId copy = kNoTensor;
  };
  std::vector<Latest> latest(marked.size());
  std::vector<Op> ops = std::move(graph.ops());
  graph.ops().clear();
  graph.ops().reserve(ops.size() + ops.size() / 4);
  StretchCounter counter;
  for (Op& op : ops) {
    if (!is_transfer(op.kind) && op.stage != Stage::update) {
      const int32_t stretch = counter.next(op);
      for (TensorId& input : op.inputs) {
        if (input == kNoTensor || static_cast<size_t>(input) >= marked.size()) continue;
        const auto i = static_cast<size_t>(input);
        if (marked[i] == 0) continue;
        if (latest[i].stretch != stretch) latest[i] = {stretch, append(graph, input, op)};
        input = latest[i].copy;
      }
    }
    graph.ops().push_back(std::move(op));
  }
  return graph;
}

Graph fetch_for_readers(Graph graph, const std::vector<char>& offloaded) {
  static NameEnding fetched(".fetched");
  return copy_for_readers(std::move(graph), offloaded, [](Graph& to, TensorId tensor, const Op& reader) {
    return append_fetch(to, tensor, fetched.behind(to.tensor(tensor).name), reader);
  });
}

}  // namespace plimsoll
