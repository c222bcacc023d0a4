#include "rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "base/units.h"
#include "device/catalogue.h"
#include "graph/graph.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/train.h"

namespace plimsoll::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Zeros flatter products: the card draws less and keeps its clock.
std::vector<std::byte> random_values(DType dtype) {
  constexpr size_t kBytes = 1 << 20;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<std::byte> bytes(kBytes);
  const auto size = static_cast<size_t>(size_of(dtype));
  for (size_t at = 0; at < kBytes; at += size) {
    const float x = uniform(random);
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    if (size == 2) bits >>= 16;  // bf16, cut off
    std::memcpy(bytes.data() + at, &bits, std::min(size, sizeof bits));
  }
  return bytes;
}

// One op over tensors of its own.
class TimedOp {
 public:
  // `given` are the values of integer tensors. All rows are live.
  TimedOp(Device& device, const CardFacts& card, const std::string& text,
          const std::map<std::string, std::vector<int32_t>>& given, double live_rows, double live_sequences)
      : device_(device), step_(step_values(live_rows, live_sequences)) {
    DeviceDescription described = as_emulated(reference_description());
    described.card = card;
    if (!device.products().empty())
      described.matmul_scratch_bytes =
          [bytes = library_workspace_bytes(card.compute_capability, device.memory_left()->total)](
              const MatmulShape&) { return bytes; };
    graph_ = assign_scratch(parse_graph("graph rate\ntensor step f64[16] input\n" + text), described);
    constexpr int64_t kAligned = 256;
    std::vector<int64_t> offsets;
    int64_t end = 0;
    for (const Tensor& tensor : graph_.tensors()) {
      offsets.push_back(end);
      end += round_up(tensor.bytes(), kAligned);
    }
    memory_ = device.map(end);
    const auto address = [&](TensorId id) { return memory_->data() + offsets[static_cast<size_t>(id)]; };
    for (size_t i = 0; i < graph_.tensors().size(); ++i) {
      const Tensor& tensor = graph_.tensors()[i];
      const auto found = given.find(tensor.name);
      if (tensor.name == kStepTensor)
        put(address(static_cast<TensorId>(i)), step_);
      else if (found != given.end())
        put(address(static_cast<TensorId>(i)), found->second);
      else
        put_random(address(static_cast<TensorId>(i)), tensor);
    }
    const auto sent = [&](TensorId id) {
      const bool is_step = graph_.tensor(id).name == kStepTensor;
      return is_step ? reinterpret_cast<const std::byte*>(step_.data()) : nullptr;
    };
    for (const Op& op : graph_.ops()) calls_.push_back(device.bind_sent(graph_, op, address, Sent{sent}));
  }

  // Seconds of the host, for a call of the last op, and of the card, for a call in a graph of `calls`, which
  // a queue holds.
  std::pair<double, double> of_launches(int calls) {
    const auto make_calls = [&] {
      for (int i = 0; i < calls; ++i) calls_.back()();
    };
    const auto one_of = [&](const std::function<void()>& work) {
      device_.finish();
      const auto start = Clock::now();
      work();
      return since(start) / calls;
    };
    make_calls();
    const double alone = one_of(make_calls);
    device_.finish();
    device_.begin_capture();
    make_calls();
    const auto graph = device_.end_capture();
    device_.launch(*graph);
    const double within = one_of([&] {
      device_.launch(*graph);
      device_.finish();
    });
    return {alone, within};
  }

  // Seconds of one run of the last op, in a queue that is never empty.
  double seconds(double at_least) {
    for (const BoundCall& call : calls_) call();
    device_.finish();
    int64_t count = 1;
    for (;;) {
      const auto start = Clock::now();
      for (int64_t i = 0; i < count; ++i) calls_.back()();
      device_.finish();
      const double taken = since(start);
      constexpr int64_t kMost = 4096;
      if (taken >= at_least || count >= kMost) return taken / static_cast<double>(count);
      const double more = at_least / std::max(taken, 1e-6) * 1.2;
      count = std::min(kMost, std::max(count + 1, static_cast<int64_t>(static_cast<double>(count) * more)));
    }
  }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Op& op() const { return graph_.ops().back(); }

 private:
  static std::vector<double> step_values(double live_rows, double live_sequences) {
    std::vector<double> values(kNumStepValues);
    const auto set = [&](StepValue which, double value) { values[static_cast<size_t>(which)] = value; };
    set(StepValue::first_micro_step, 1);
    set(StepValue::loss_scale, 1);
    set(StepValue::learning_rate, 1e-3);
    set(StepValue::optimizer_step, 1);
    set(StepValue::live_tokens, live_rows);
    set(StepValue::live_sequences, live_sequences);
    return values;
  }
  template <class T>
  void put(std::byte* to, const std::vector<T>& values) {
    device_.upload(to, std::as_bytes(std::span(values)));
  }
  void put_random(std::byte* to, const Tensor& tensor) {
    const std::vector<std::byte> values = random_values(tensor.dtype);
    for (int64_t at = 0; at < tensor.bytes(); at += static_cast<int64_t>(values.size()))
      device_.upload(to + at, std::span(values).first(static_cast<size_t>(
                                  std::min(static_cast<int64_t>(values.size()), tensor.bytes() - at))));
  }

  Device& device_;
  std::vector<double> step_;
  Graph graph_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<BoundCall> calls_;
};

std::string text_of(int64_t value) { return std::to_string(value); }

class Measurement {
 public:
  Measurement(Device& device, Device* own, const CardFacts& card, bool small, const Tell& tell)
      : device_(device), own_(own), card_(card), small_(small), seconds_(small ? 1e-4 : 0.02), tell_(tell) {}

  Measured all() {
    overhead();
    memory();
    copies();
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (own_ != nullptr && dtype == DType::bf16) own_products();
      products(dtype);
      attentions(dtype);
      linear_attentions(dtype);
      delta_rules(dtype);
    }
    rates_.of_card = true;
    rates_.calibrated = true;
    return {rates_, launch_seconds_};
  }

 private:
  void say(const std::string& name, double rate, const char* unit) {
    tell_(
        {"rate/" + name, rate > 0 && std::isfinite(rate) ? "" : "no rate", {{"rate", rate}, {"unit", unit}}});
  }

  // Cards without bf16 multiply f16, whose rates are kept as bf16's (DeviceRates::of_card).
  [[nodiscard]] std::string type_of(DType t) const {
    const bool lacks = t == DType::bf16 && card_.compute_capability < 80;
    return std::string(to_string(lacks ? DType::f16 : t));
  }

  void overhead() {
    TimedOp one(device_, card_,
                "tensor a f32[1,64] input\ntensor b f32[1,64] input\ny f32[1,64] = add(a, b) @s forward\n",
                {}, 1, 1);
    rates_.op_overhead = one.seconds(seconds_);
    say("smallest op", rates_.op_overhead, "s");
    constexpr int kCalls = 500;
    const auto [alone, within] = one.of_launches(kCalls);
    launch_seconds_ = alone;
    say("launch, of the host", alone, "s");
    say("smallest op, in a graph", within, "s");
  }

  void memory() {
    const std::string rows = small_ ? "16" : "65536";
    const std::string shape = " " + type_of(DType::bf16) + "[" + rows + ",1024]";
    TimedOp add(
        device_, card_,
        "tensor a" + shape + " input\ntensor b" + shape + " input\ny" + shape + " = add(a, b) @s forward\n",
        {}, std::stod(rows), 1);
    const Tensor& y = add.graph().tensor(add.op().outputs.front());
    rates_.bandwidth = 3.0 * static_cast<double>(y.bytes()) / add.seconds(seconds_);
    say("memory, of additions", rates_.bandwidth, "bytes/s");
  }

  // Pinned, as offload moves them: the slower direction counts.
  void copies() {
    const int64_t bytes = (small_ ? 1 : 256) * kMiB;
    const auto there = device_.map(bytes), here = device_.map_host(bytes);
    rates_.host_copy = 0;
    for (const bool fetches : {true, false}) {
      const Transfer transfer{fetches, {there->data(), static_cast<size_t>(bytes)}, here->data(), nullptr, 0,
                              {}};
      const auto bound = device_.bind_transfers(std::span(&transfer, 1));
      const auto move = [&] {
        bound.front().start();
        bound.front().wait();
        device_.finish();
      };
      move();
      const auto start = Clock::now();
      constexpr int kTimes = 4;
      for (int i = 0; i < kTimes; ++i) move();
      const double rate = static_cast<double>(kTimes * bytes) / since(start);
      rates_.host_copy = rates_.host_copy == 0 ? rate : std::min(rate, rates_.host_copy);
      say(fetches ? "copy, host to card" : "copy, card to host", rate, "bytes/s");
    }
  }

  double product(Device& device, const MatmulShape& s) {
    const auto tensor = [this](const char* name, int64_t rows, int64_t columns, DType dtype,
                               const char* role) {
      return std::string("tensor ") + name + " " + type_of(dtype) + "[" + text_of(rows) + "," +
             text_of(columns) + "] " + role + "\n";
    };
    const std::string c = type_of(s.c) + "[" + text_of(s.m) + "," + text_of(s.n) + "]";
    std::string text;
    if (s.a_transposed)
      text = tensor("x", s.k, s.n, s.a, "input") + tensor("d_y", s.k, s.m, s.a, "input") +
             tensor("g", s.m, s.n, s.c, "gradient") +
             "g = linear_dw(x, d_y, step) {accumulate=0, scale=1.0} @l backward\n";
    else if (s.b_transposed)
      text = tensor("x", s.m, s.k, s.a, "input") + tensor("w", s.n, s.k, s.b, "trainable") + "y " + c +
             " = linear(x, w, -, -, step) {scale=1.0} @l forward\n";
    else
      text = tensor("d_y", s.m, s.k, s.a, "input") + tensor("w", s.k, s.n, s.b, "trainable") + "d_x " + c +
             " = linear_dx(d_y, w, -, step) {scale=1.0} @l backward\n";
    TimedOp op(device, card_, text, {}, static_cast<double>(s.a_transposed ? s.k : s.m), 1);
    return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) /
           op.seconds(seconds_);
  }

  // The libraries that compute them, in addition to the kernels here.
  void own_products() {
    const std::string products = device_.products();
    constexpr int64_t kShapes[][3] = {{4096, 4096, 4096}, {4096, 11008, 4096}, {2048, 1024, 3072}};
    for (const auto& [m, n, k] : kShapes)
      for (const bool own : {false, true}) {
        const DType t = DType::bf16;
        const double rate = product(own ? *own_ : device_, {m, n, k, t, t, t, false, true});
        say((own ? "own product" : "product by " + products.substr(0, products.find(','))) +
                ", bf16 forward " + text_of(m) + " x " + text_of(n) + " x " + text_of(k),
            rate, "FLOP/s");
      }
  }

  // A table for each form; products of as many tokens as micro-steps have, by features of models and ranks of
  // adapters.
  void products(DType t) {
    std::vector<int64_t> tokens = {256, 1024, 4096};
    if (t == DType::f32) tokens = {1024};  // few train by them
    if (small_) tokens = {64};
    const std::vector<int64_t> features =
        small_ ? std::vector<int64_t>{16, 64} : std::vector<int64_t>{16, 1024, 4096, 11008};
    double best = 0;
    for (const MatmulShape& form :
         {MatmulShape{.a = t, .b = t, .c = t, .b_transposed = true}, MatmulShape{.a = t, .b = t, .c = t},
          MatmulShape{.a = t, .b = t, .c = DType::f32, .a_transposed = true}}) {
      MatmulGrid grid{
          form, form.a_transposed ? features : tokens, features, form.a_transposed ? tokens : features, {}};
      for (const int64_t m : grid.m)
        for (const int64_t n : grid.n)
          for (const int64_t k : grid.k) {
            MatmulShape shape = form;
            shape.m = m;
            shape.n = n;
            shape.k = k;
            grid.flop_rates.push_back(product(device_, shape));
            best = std::max(best, grid.flop_rates.back());
            say("product " + std::string(to_string(t)) + " " +
                    (form.a_transposed   ? "dw "
                     : form.b_transposed ? "forward "
                                         : "dx ") +
                    text_of(m) + " x " + text_of(n) + " x " + text_of(k),
                grid.flop_rates.back(), "FLOP/s");
          }
      rates_.matmuls.push_back(std::move(grid));
    }
    (t == DType::bf16 ? rates_.matmul_bf16 : rates_.matmul_f32) = best;
  }

  // Forward and backward of attention: causal, two queries' heads to one of keys; and of 16-bit values what
  // has kernels of its own.
  void attentions(DType t) {
    plain_attentions(t);
    if (t != DType::bf16) return;
    const int64_t length = small_ ? 32 : 512;
    for (const bool backward : {false, true})
      for (const auto& [name, dims, form] : {std::tuple{"_with_bias", 64, Attention::with_bias},
                                             {"_with_dropout", 64, Attention::with_dropout},
                                             {"_plain", 136, Attention::plain}}) {
        const std::string op = std::string(backward ? "attention_grad" : "attention") + name;
        const auto [at, rate] = attention(t, dims, length, backward, form);
        rates_.ops.push_back({op, t, dims, {{at, rate}}});
        say(op + ", heads of " + text_of(dims) + ", " + text_of(length) + " tokens", rate, "FLOP/s");
      }
  }
  void plain_attentions(DType t) {
    std::map<std::pair<std::string, int64_t>, RateCurve> curves;
    for (const int64_t dims : {int64_t{64}, int64_t{128}})
      for (const int64_t length : small_ ? std::vector<int64_t>{32} : std::vector<int64_t>{512, 2048})
        for (const bool backward : {false, true}) {
          const std::string op = backward ? "attention_grad" : "attention";
          const auto [at, rate] = attention(t, dims, length, backward);
          RateCurve& curve = curves[{op, dims}];
          curve = {op, t, dims, std::move(curve.points)};
          curve.points.push_back({at, rate});
          say(op + " " + std::string(to_string(t)) + ", heads of " + text_of(dims) + ", " + text_of(length) +
                  " tokens",
              rate, "FLOP/s");
          if (t == DType::bf16 && !backward) rates_.vector_bf16 = rate;
        }
    for (auto& [key, curve] : curves) rates_.ops.push_back(std::move(curve));
  }

  // As T5's encoder has it, or with dropout too.
  enum class Attention : uint8_t { plain, with_bias, with_dropout };
  std::pair<double, double> attention(DType t, int64_t dims, int64_t length, bool backward,
                                      Attention form = Attention::plain) {
    const int64_t heads = small_ ? 2 : 16, sequences = small_ ? 1 : std::max<int64_t>(1, 4096 / length);
    const int64_t tokens = length * sequences;
    const std::string type = type_of(t);
    const auto shape = [&](int64_t n) {
      return type + "[" + text_of(tokens) + "," + text_of(n * dims) + "]";
    };
    std::vector<int32_t> starts;
    for (int64_t s = 0; s <= sequences; ++s) starts.push_back(static_cast<int32_t>(s * length));
    std::string text = "tensor q " + shape(heads) + " input\ntensor k " + shape(heads / 2) +
                       " input\ntensor v " + shape(heads / 2) + " input\ntensor starts i32[" +
                       text_of(sequences + 1) + "] input\n";
    std::string attributes = "head_dim=" + text_of(dims) + ", length=" + text_of(length) + ", window=0}";
    std::string operands = "starts, step";
    if (form != Attention::plain) {
      operands += ", -, table";
      text += "tensor table " + type + "[32," + text_of(heads) + "] trainable\n";
      attributes = (form == Attention::with_dropout ? "causal=0, dropout=0.1, " : "causal=0, ") + attributes;
      attributes.insert(attributes.size() - 1, ", max_distance=128, scale=1.0");
    }
    if (form == Attention::with_dropout) {
      operands += ", samples, positions";
      for (const char* name : {"samples", "positions"})
        text += "tensor " + std::string(name) + " i32[" + text_of(tokens) + "] input\n";
    }
    if (backward && form != Attention::plain)
      text += "tensor table.grad f32[32," + text_of(heads) + "] gradient\n";
    if (backward) text += "tensor d_o " + shape(heads) + " input\n";
    text += "o " + shape(heads) + ", lse f32[" + text_of(tokens) + "," + text_of(heads) +
            "] = attention(q, k, v, " + operands + ") {" + attributes + " @a forward\n";
    if (backward)
      text += "d_q " + shape(heads) + ", d_k " + shape(heads / 2) + ", d_v " + shape(heads / 2) +
              (form == Attention::plain ? "" : ", table.grad") + " = attention_grad(q, k, v, o, lse, d_o, " +
              operands + ") {" + (form == Attention::plain ? "" : "accumulate=0, ") + attributes +
              " @a backward\n";
    TimedOp op(device_, card_, text, {{"starts", starts}}, static_cast<double>(tokens),
               static_cast<double>(sequences));
    const Work work = work_of(op.graph(), op.op());
    return {work.at, work.amount / op.seconds(seconds_)};
  }

  // Forward and backward of the gated delta rule, with half of the heads of Qwen3.5-4B.
  void delta_rules(DType t) {
    for (const bool backward : {false, true}) {
      const std::string op = backward ? "delta_rule_grad" : "delta_rule";
      RateCurve curve{op, t, 0, {}};
      for (const int64_t tokens : small_ ? std::vector<int64_t>{80} : std::vector<int64_t>{1024, 4096}) {
        const auto [at, rate] = delta_rule(t, tokens, backward);
        curve.points.push_back({at, rate});
        say(op + " " + std::string(to_string(t)) + ", " + text_of(tokens) + " tokens", rate, "FLOP/s");
      }
      rates_.ops.push_back(std::move(curve));
    }
  }

  std::pair<double, double> delta_rule(DType t, int64_t tokens, bool backward) {
    const int64_t heads = small_ ? 2 : 16, key_heads = heads / 2, width = small_ ? 16 : 128;
    const auto shape = [&](const std::string& type, int64_t columns) {
      return " " + type + "[" + text_of(tokens) + "," + text_of(columns) + "]";
    };
    const std::string keys = shape(type_of(t), key_heads * width), values = shape(type_of(t), heads * width);
    const std::string gates = shape("f32", heads);
    const auto input = [](const char* name, const std::string& of) {
      return std::string("tensor ") + name + of + " input\n";
    };
    const std::string attributes =
        "{eps=1e-06, heads=" + text_of(heads) + ", key_heads=" + text_of(key_heads) + "}";
    std::string text = input("q", keys) + input("k", keys) + input("v", values) + input("g", gates) +
                       input("beta", gates) + "tensor starts i32[2] input\n";
    if (backward)
      text += input("d_o", values) + "d_q" + keys + ", d_k" + keys + ", d_v" + values + ", d_g" + gates +
              ", d_beta" + gates + " = delta_rule_grad(q, k, v, g, beta, d_o, starts, step) " + attributes +
              " @a backward\n";
    else
      text += "o" + values + " = delta_rule(q, k, v, g, beta, starts, step) " + attributes + " @a forward\n";
    TimedOp op(device_, card_, text, {{"starts", {0, static_cast<int32_t>(tokens)}}},
               static_cast<double>(tokens), 1);
    const Work work = work_of(op.graph(), op.op());
    return {work.at, work.amount / op.seconds(seconds_)};
  }

  // Forward and backward of gated linear attention, with the heads of GLA-1.3B.
  void linear_attentions(DType t) {
    for (const bool backward : {false, true}) {
      const std::string op = backward ? "gla_grad" : "gla";
      RateCurve curve{op, t, 0, {}};
      for (const int64_t tokens : small_ ? std::vector<int64_t>{80} : std::vector<int64_t>{1024, 4096}) {
        const auto [at, rate] = linear_attention(t, tokens, backward);
        curve.points.push_back({at, rate});
        say(op + " " + std::string(to_string(t)) + ", " + text_of(tokens) + " tokens", rate, "FLOP/s");
      }
      rates_.ops.push_back(std::move(curve));
    }
  }

  std::pair<double, double> linear_attention(DType t, int64_t tokens, bool backward) {
    const int64_t heads = small_ ? 1 : 4, keys = small_ ? 16 : 256, values = small_ ? 32 : 512;
    const int64_t length = small_ ? 80 : 1024;
    const auto shape = [&](int64_t width) {
      return " " + type_of(t) + "[" + text_of(tokens) + "," + text_of(heads * width) + "]";
    };
    const auto input = [&](const char* name, int64_t width) {
      return std::string("tensor ") + name + shape(width) + " input\n";
    };
    std::vector<int32_t> starts;
    for (int64_t at = 0; at <= tokens; at += length) starts.push_back(static_cast<int32_t>(at));
    const std::string attributes = "{clamp_min=-1e30, heads=" + text_of(heads) +
                                   ", kv_heads=" + text_of(heads) + ", normalizer=16.0, scale=0.0625}";
    std::string text = input("q", keys) + input("k", keys) + input("v", values) + input("gate", keys) +
                       "tensor starts i32[" + text_of(static_cast<int64_t>(starts.size())) + "] input\n";
    if (backward)
      text += input("d_o", values) + "d_q" + shape(keys) + ", d_k" + shape(keys) + ", d_v" + shape(values) +
              ", d_gate" + shape(keys) + " = gla_grad(q, k, v, gate, d_o, starts, step) " + attributes +
              " @a backward\n";
    else
      text += "o" + shape(values) + " = gla(q, k, v, gate, starts, step) " + attributes + " @a forward\n";
    TimedOp op(device_, card_, text, {{"starts", starts}}, static_cast<double>(tokens),
               static_cast<double>(starts.size() - 1));
    const Work work = work_of(op.graph(), op.op());
    return {work.at, work.amount / op.seconds(seconds_)};
  }

  Device& device_;
  Device* own_;
  const CardFacts& card_;
  bool small_;
  double seconds_;
  const Tell& tell_;
  DeviceRates rates_;
  double launch_seconds_ = 0;
};

}  // namespace

Measured measure_rates(Device& device, Device* own, const CardFacts& card, bool small, const Tell& tell) {
  return Measurement(device, own, card, small, tell).all();
}

}  // namespace plimsoll::gpu_check
