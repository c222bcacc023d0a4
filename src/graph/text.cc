// The text form of a graph: one block, tensor or op a line, no addresses, no times.
//
//   graph train
//   block 0 model.layers.0 layer
//   tensor input_ids i32[64] input
//   tensor w.exp_avg f32[64,32] state disk block=0
//   model.layers.0.h bf16[64,32] = rms_norm(x, w, -) {eps=1e-05} @model.layers.0 forward block=0
//
// Outputs that are declared earlier (persistent tensors, and tensors off the device) are written without
// type. Usual facts (no block, an output in its op's block, those of a plain matrix of the checkpoint) are
// left out.
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "graph/graph.h"
#include "graph/op_kind.h"

namespace plimsoll {
namespace {

std::string print_value(const AttrValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* text = std::get_if<std::string>(&value)) return formatted("'{}'", *text);
  std::string text(32, '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), std::get<double>(value));
  text.resize(static_cast<size_t>(end.ptr - text.data()));
  // A float keeps a mark of being one, so that it is read back as one.
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string type_of(const Tensor& tensor) {
  return std::string(to_string(tensor.dtype)) + tensor.shape.to_string();
}

constexpr std::array<std::string_view, 4> kOrigins = {"checkpoint", "derived", "fresh", "adapter"};
constexpr std::array<std::string_view, 5> kInitialisers = {"normal", "zeros", "ones", "kaiming_uniform",
                                                           "row_norms"};
constexpr std::array<std::string_view, 3> kParts = {"body", "embedding", "head"};
constexpr std::array<std::string_view, 2> kRates = {"usual", "adapter_out"};
constexpr std::array<std::string_view, 6> kAdapterParts = {"none",        "a",           "b",
                                                           "embedding_a", "embedding_b", "magnitude"};

std::string print_block(BlockId block) { return block == kNoBlock ? "" : " block=" + std::to_string(block); }

std::string print_module(const Name& module) { return module.empty() ? "" : " of=" + module; }

template <typename E, size_t N>
std::string print_fact(const char* key, E value, E usual, const std::array<std::string_view, N>& names) {
  if (value == usual) return "";
  return formatted(" {}={}", key, names[static_cast<size_t>(value)]);
}

std::string print_facts(const ParameterInfo& facts) {
  const ParameterInfo usual;
  return print_fact("origin", facts.origin, usual.origin, kOrigins) +
         print_fact("init", facts.init, usual.init, kInitialisers) +
         print_fact("part", facts.part, usual.part, kParts) + (facts.decays ? "" : " decays=no") +
         print_fact("rate", facts.rate, usual.rate, kRates) +
         print_fact("adapter", facts.adapter, usual.adapter, kAdapterParts);
}

bool declared_by_op(const Tensor& tensor) {
  return tensor.role == Role::activation && tensor.space == Space::device;
}

// Reads one line from left to right; errors carry the line number.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : rest_(line), number_(number) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(formatted("graph text, line {}: {}", number_, why));
  }
  void skip_blanks() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool sees(std::string_view token) {
    skip_blanks();
    return rest_.substr(0, token.size()) == token;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(formatted("expected '{}' before '{}'", token, rest_.substr(0, 20)));
  }
  std::string word() {
    skip_blanks();
    size_t n = 0;
    while (n < rest_.size() && std::string_view(" ,(){}[]=@").find(rest_[n]) == std::string_view::npos) ++n;
    if (n == 0) fail(formatted("expected a name before '{}'", rest_.substr(0, 20)));
    std::string text(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return text;
  }
  int64_t integer() {
    const std::string text = word();
    int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail(formatted("'{}' is no number", text));
    return value;
  }
  Shape shape() {
    expect("[");
    std::vector<int64_t> dims;
    while (!take("]")) {
      if (!dims.empty()) expect(",");
      dims.push_back(integer());
    }
    return Shape(std::move(dims));
  }
  AttrValue value() {
    if (take("'")) {
      const size_t end = rest_.find('\'');
      if (end == std::string_view::npos) fail("a text without closing quote");
      std::string text(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      return text;
    }
    const std::string text = word();
    if (text.find_first_of(".einf") == std::string::npos) {
      int64_t whole = 0;
      const auto result = std::from_chars(text.data(), text.data() + text.size(), whole);
      if (result.ec == std::errc() && result.ptr == text.data() + text.size()) return whole;
    }
    double number = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail(formatted("'{}' is no value", text));
    return number;
  }
  // The block's number behind "block="; `otherwise` where that does not stand here.
  BlockId block(const Graph& graph, BlockId otherwise) {
    if (!take("block=")) return otherwise;
    const int64_t number = integer();
    if (number < kNoBlock || number >= static_cast<int64_t>(graph.blocks().size()))
      fail(formatted("there is no block {} so far", number));
    return static_cast<BlockId>(number);
  }
  // The axis's number behind "axis="; the first where that does not stand here.
  AxisId axis(const Graph& graph) {
    if (!take("axis=")) return kFirstAxis;
    const int64_t number = integer();
    if (number < 0 || number >= static_cast<int64_t>(graph.axes().size()))
      fail(formatted("there is no axis {} so far", number));
    return static_cast<AxisId>(number);
  }
  // The value behind "key=", one of `names`; `otherwise` where that does not stand here.
  template <typename E, size_t N>
  E fact(const char* key, E otherwise, const std::array<std::string_view, N>& names) {
    if (!take(std::string(key) + "=")) return otherwise;
    const std::string text = word();
    for (size_t i = 0; i < N; ++i)
      if (names[i] == text) return static_cast<E>(i);
    fail(formatted("'{}' is no {}", text, key));
  }
  [[nodiscard]] bool at_end() {
    skip_blanks();
    return rest_.empty();
  }

 private:
  std::string_view rest_;
  int number_;
};

TensorId existing(const Graph& graph, const std::string& name, const LineReader& in) {
  if (name == "-") return kNoTensor;
  const TensorId id = graph.find(name);
  if (id == kNoTensor) in.fail(formatted("no tensor named '{}' so far", name));
  return id;
}

// Outputs made here whose block is not given are added to `of_op`: they are in the op's block.
TensorId read_output(Graph& graph, LineReader& in, Operands& of_op) {
  const std::string name = in.word();
  if (name == "-") return kNoTensor;
  const TensorId known = graph.find(name);
  if (known != kNoTensor) {
    // Updated in place: its type and block may stand there again.
    if (!in.sees(",") && !in.sees("=")) {
      in.word();
      in.shape();
      if (in.sees("block=")) in.block(graph, kNoBlock);
    }
    return known;
  }
  const DType dtype = parse_dtype(in.word());
  const TensorId id = graph.add_tensor({name, in.shape(), dtype, Role::activation});
  if (in.sees("block="))
    graph.set_block(id, in.block(graph, kNoBlock));
  else
    of_op.push_back(id);
  return id;
}

void read_op(Graph& graph, LineReader& in) {
  Op op;
  Operands of_op;
  do {
    op.outputs.push_back(read_output(graph, in, of_op));
  } while (in.take(","));
  in.expect("=");
  op.kind = parse_op_kind(in.word());
  in.expect("(");
  while (!in.take(")")) {
    if (!op.inputs.empty()) in.expect(",");
    op.inputs.push_back(existing(graph, in.word(), in));
  }
  if (in.take("{")) {
    while (!in.take("}")) {
      if (!op.attrs.empty()) in.expect(",");
      std::string key = in.word();
      in.expect("=");
      op.attrs.emplace(std::move(key), in.value());
    }
  }
  if (in.take("@")) op.scope = in.word();
  if (in.take("of=")) op.adapts = in.word();
  op.of_reference = in.take("reference ");
  op.stage = parse_stage(in.word());
  op.block = in.block(graph, kNoBlock);
  op.axis = in.axis(graph);
  for (const TensorId id : of_op) graph.set_block(id, op.block);
  if (in.take("scratch")) {
    in.expect("=");
    op.scratch = existing(graph, in.word(), in);
  }
  if (!in.at_end()) in.fail("text after the op's end");
  graph.ops().push_back(std::move(op));
}

void read_block(Graph& graph, LineReader& in) {
  if (in.integer() != static_cast<int64_t>(graph.blocks().size())) in.fail("blocks are numbered from 0 on");
  std::string name = in.word();
  graph.add_block({std::move(name), in.word()});
}

void read_axis(Graph& graph, LineReader& in) {
  if (in.integer() != static_cast<int64_t>(graph.axes().size()))
    in.fail("axes behind the first are numbered from 1 on");
  if (graph.axes().size() == kMostAxes) in.fail(formatted("there are more than {} axes", kMostAxes));
  graph.add_axis(in.word());
}

void read_tensor(Graph& graph, LineReader& in) {
  Tensor tensor;
  tensor.name = in.word();
  tensor.dtype = parse_dtype(in.word());
  tensor.shape = in.shape();
  tensor.role = parse_role(in.word());
  for (const Space space : {Space::device, Space::host, Space::disk})
    if (in.take(to_string(space))) tensor.space = space;
  tensor.block = in.block(graph, kNoBlock);
  ParameterInfo& facts = tensor.parameter;
  facts.origin = in.fact("origin", facts.origin, kOrigins);
  facts.init = in.fact("init", facts.init, kInitialisers);
  facts.part = in.fact("part", facts.part, kParts);
  constexpr std::array<std::string_view, 2> kAnswers = {"no", "yes"};
  facts.decays = in.fact("decays", facts.decays ? 1 : 0, kAnswers) != 0;
  facts.rate = in.fact("rate", facts.rate, kRates);
  facts.adapter = in.fact("adapter", facts.adapter, kAdapterParts);
  if (in.take("of=")) tensor.module = in.word();
  if (in.take("whole")) tensor.whole = in.shape();
  if (!in.at_end()) in.fail("text after the tensor's end");
  graph.add_tensor(std::move(tensor));
}

}  // namespace

std::string print_op(const Graph& graph, const Op& op) {
  const auto name = [&](TensorId id) {
    return id == kNoTensor ? std::string("-") : graph.tensor(id).name.text();
  };
  std::string line;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (i > 0) line += ", ";
    line += name(op.outputs[i]);
    if (op.outputs[i] == kNoTensor || !declared_by_op(graph.tensor(op.outputs[i]))) continue;
    const Tensor& output = graph.tensor(op.outputs[i]);
    line += " " + type_of(output);
    if (output.block != op.block) line += " block=" + std::to_string(output.block);
  }
  line += formatted(" = {}(", to_string(op.kind));
  for (size_t i = 0; i < op.inputs.size(); ++i) line += (i > 0 ? ", " : "") + name(op.inputs[i]);
  line += ")";
  if (!op.attrs.empty()) {
    line += " {";
    bool first = true;
    for (const auto& [key, value] : op.attrs) {
      line += formatted("{}{}={}", first ? "" : ", ", key, print_value(value));
      first = false;
    }
    line += "}";
  }
  if (!op.scope.empty()) line += " @" + op.scope;
  line += print_module(op.adapts);
  if (op.of_reference) line += " reference";
  line += formatted(" {}{}", to_string(op.stage), print_block(op.block));
  if (op.axis != kFirstAxis) line += " axis=" + std::to_string(op.axis);
  if (op.scratch != kNoTensor) line += " scratch=" + name(op.scratch);
  return line;
}

std::string print_graph(const Graph& graph) {
  std::string text = formatted("graph {}\n", graph.name());
  for (size_t i = 1; i < graph.axes().size(); ++i) text += formatted("axis {} {}\n", i, graph.axes()[i]);
  for (size_t i = 0; i < graph.blocks().size(); ++i)
    text += formatted("block {} {} {}\n", i, graph.blocks()[i].name, graph.blocks()[i].kind);
  for (const Tensor& tensor : graph.tensors()) {
    if (declared_by_op(tensor)) continue;
    text += formatted("tensor {} {} {}", tensor.name, type_of(tensor), to_string(tensor.role));
    if (tensor.space != Space::device) text += " " + std::string(to_string(tensor.space));
    text += formatted("{}{}{}{}\n", print_block(tensor.block), print_facts(tensor.parameter),
                      print_module(tensor.module),
                      tensor.whole.rank() == 0 ? "" : " whole" + tensor.whole.to_string());
  }
  for (const Op& op : graph.ops()) text += print_op(graph, op) + "\n";
  return text;
}

Graph parse_graph(std::string_view text) {
  Graph graph;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (trim(line).empty() || line.front() == '#') continue;
    LineReader in(line, number);
    if (in.take("graph ")) {
      graph.set_name(in.at_end() ? "" : in.word());
    } else if (in.take("block ")) {
      read_block(graph, in);
    } else if (in.take("axis ")) {
      read_axis(graph, in);
    } else if (in.take("tensor ")) {
      read_tensor(graph, in);
    } else {
      read_op(graph, in);
    }
  }
  return graph;
}

}  // namespace plimsoll
