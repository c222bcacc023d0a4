// The text form of a graph: one tensor or op a line, no addresses, no times.
//
//   graph train
//   tensor input_ids i32[64] input
//   tensor w.exp_avg f32[64,32] state disk
//   model.layers.0.h bf16[64,32] = rms_norm(x, w, -) {eps=1e-05} @model.layers.0 forward
//
// Outputs that are declared earlier (persistent tensors, and what is not on the device) are written without
// type.
#include <cctype>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/strings.h"
#include "graph/graph.h"

namespace plimsoll {
namespace {

std::string print_value(const AttrValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* text = std::get_if<std::string>(&value)) return "'" + *text + "'";
  std::string text(32, '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), std::get<double>(value));
  text.resize(static_cast<size_t>(end.ptr - text.data()));
  // A float keeps a mark of being one, so that it is read back as one.
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string type_of(const Tensor& tensor) {
  return std::string(to_string(tensor.dtype)) + tensor.shape.to_string();
}

bool declared_by_op(const Tensor& tensor) {
  return tensor.role == Role::activation && tensor.space == Space::device;
}

// Reads one line from left to right; errors carry the line number.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : rest_(line), number_(number) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError("graph text, line " + std::to_string(number_) + ": " + why);
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
    if (!take(token))
      fail("expected '" + std::string(token) + "' before '" + std::string(rest_.substr(0, 20)) + "'");
  }
  std::string word() {
    skip_blanks();
    size_t n = 0;
    while (n < rest_.size() && std::string_view(" ,(){}[]=@").find(rest_[n]) == std::string_view::npos) ++n;
    if (n == 0) fail("expected a name before '" + std::string(rest_.substr(0, 20)) + "'");
    std::string text(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return text;
  }
  int64_t integer() {
    const std::string text = word();
    int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail("'" + text + "' is no number");
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
      fail("'" + text + "' is no value");
    return number;
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
  if (id == kNoTensor) in.fail("no tensor named '" + name + "' so far");
  return id;
}

TensorId read_output(Graph& graph, LineReader& in) {
  const std::string name = in.word();
  if (name == "-") return kNoTensor;
  const TensorId known = graph.find(name);
  if (known != kNoTensor) {
    // Updated in place: the type may stand there again.
    if (!in.sees(",") && !in.sees("=")) {
      in.word();
      in.shape();
    }
    return known;
  }
  const DType dtype = parse_dtype(in.word());
  return graph.add_tensor({name, in.shape(), dtype, Role::activation});
}

void read_op(Graph& graph, LineReader& in) {
  Op op;
  do {
    op.outputs.push_back(read_output(graph, in));
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
  op.stage = parse_stage(in.word());
  if (in.take("scratch")) {
    in.expect("=");
    op.scratch = existing(graph, in.word(), in);
  }
  if (!in.at_end()) in.fail("text after the op's end");
  graph.ops().push_back(std::move(op));
}

}  // namespace

std::string print_op(const Graph& graph, const Op& op) {
  const auto name = [&](TensorId id) { return id == kNoTensor ? std::string("-") : graph.tensor(id).name; };
  std::string line;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (i > 0) line += ", ";
    line += name(op.outputs[i]);
    if (op.outputs[i] != kNoTensor && declared_by_op(graph.tensor(op.outputs[i])))
      line += " " + type_of(graph.tensor(op.outputs[i]));
  }
  line += " = " + std::string(to_string(op.kind)) + "(";
  for (size_t i = 0; i < op.inputs.size(); ++i) line += (i > 0 ? ", " : "") + name(op.inputs[i]);
  line += ")";
  if (!op.attrs.empty()) {
    line += " {";
    bool first = true;
    for (const auto& [key, value] : op.attrs) {
      line += (first ? "" : ", ") + key + "=" + print_value(value);
      first = false;
    }
    line += "}";
  }
  if (!op.scope.empty()) line += " @" + op.scope;
  line += " " + std::string(to_string(op.stage));
  if (op.scratch != kNoTensor) line += " scratch=" + name(op.scratch);
  return line;
}

std::string print_graph(const Graph& graph) {
  std::string text = "graph " + graph.name() + "\n";
  for (const Tensor& tensor : graph.tensors()) {
    if (declared_by_op(tensor)) continue;
    text += "tensor " + tensor.name + " " + type_of(tensor) + " " + std::string(to_string(tensor.role));
    if (tensor.space != Space::device) text += " " + std::string(to_string(tensor.space));
    text += "\n";
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
    } else if (in.take("tensor ")) {
      std::string name = in.word();
      const DType dtype = parse_dtype(in.word());
      Shape shape = in.shape();
      const Role role = parse_role(in.word());
      const Space space = in.at_end() ? Space::device : parse_space(in.word());
      graph.add_tensor({std::move(name), std::move(shape), dtype, role, space});
    } else {
      read_op(graph, in);
    }
  }
  return graph;
}

}  // namespace plimsoll
