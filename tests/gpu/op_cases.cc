#include "op_cases.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "harness/gpu_harness.h"
#include "harness/reference.h"

namespace plimsoll::gpu_check {
namespace {

using harness::OpCase;
using harness::OpRun;
using harness::Sharing;
using harness::Values;

DeviceDescription described(const Device& on, const CardFacts& card) {
  DeviceDescription device = as_emulated(reference_description());
  device.card = card;
  // The scratch of a small card's plans: all of it comes and goes with each case.
  if (!on.products().empty()) device.matmul_scratch_bytes = [](const MatmulShape&) { return kMiB; };
  return device;
}

// One bit of what the op computed.
void turn_a_bit(const Graph& graph, OpRun& run) {
  const auto id = static_cast<size_t>(graph.ops().back().outputs.front());
  run.bytes[id].front() ^= std::byte{1};
  if (!run.values[id].empty()) run.values[id].front() += 1.0 + std::abs(run.values[id].front());
}

std::string bits_fault(const Graph& graph, const OpRun& a, const OpRun& b, const std::string& what) {
  for (const Op& op : graph.ops())
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      const auto& one = a.bytes[static_cast<size_t>(id)];
      const auto& other = b.bytes[static_cast<size_t>(id)];
      const auto differ =
          static_cast<size_t>(std::mismatch(one.begin(), one.end(), other.begin()).first - one.begin());
      const size_t all = std::transform_reduce(one.begin(), one.end(), other.begin(), size_t{0},
                                               std::plus<>(), [](auto x, auto y) { return size_t{x != y}; });
      if (all > 0)
        return graph.tensor(id).name + " has other bits " + what + ", at byte " + std::to_string(differ) +
               " of " + std::to_string(one.size()) + ", " + std::to_string(all) + " in all";
    }
  return "";
}

double worst(const OpRun& run, const std::vector<Values>& want, harness::Tolerance tolerance) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) most = std::max(most, farthest(run.values[i], want[i], tolerance));
  return most;
}

class CaseOnCard {
 public:
  CaseOnCard(Device& device, const CardFacts& card, const OpCase& c, DType dtype, bool wrong)
      : device_(device),
        card_(card),
        case_(c),
        dtype_(dtype),
        wrong_(wrong),
        graph_(harness::make_graph(c, dtype)),
        values_(harness::make_values(graph_, c)) {}

  // "" or what is wrong.
  std::string ask(nlohmann::ordered_json& figures) {
    OpRun run = run_on(device_, card_, graph_, values_);
    if (wrong_) turn_a_bit(graph_, run);
    if (!run.faults.empty()) return join(run.faults, "; ");
    std::vector<Values> want = values_;
    harness::run_reference(graph_, want, true);
    const harness::Tolerance tolerance = harness::tolerance_of(dtype_, case_.slack);
    figures["off"] = worst(run, want, tolerance);
    const bool fixed = std::all_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
      return has_fixed_bits(op, dtype_, device_.products().starts_with("cuBLASLt"));
    });
    figures["bits"] = fixed ? "of the emulated card" : "its own";
    for (size_t i = 0; i < want.size(); ++i)
      if (std::string fault = harness::compare(graph_.tensors()[i].name, run.values[i], want[i], tolerance);
          !fault.empty())
        return fault;
    if (fixed) {
      const OpRun emulated =
          harness::run_emulated(graph_, values_, gpu::emulated::Order::forward, std::nullopt, {}, card_);
      if (std::string fault = bits_fault(graph_, run, emulated, "on the emulated card"); !fault.empty())
        return fault;
    }
    if (std::string fault = bits_fault(graph_, run, run_on(device_, card_, graph_, values_), "a second time");
        !fault.empty())
      return fault;
    return in_place(run, want, tolerance);
  }

 private:
  std::string in_place(const OpRun& apart, const std::vector<Values>& want, harness::Tolerance tolerance) {
    for (const Sharing& sharing : harness::sharings(graph_)) {
      const OpRun shared = run_on(device_, card_, graph_, values_, sharing);
      if (!shared.faults.empty()) return "in place: " + join(shared.faults, "; ");
      const auto output = static_cast<size_t>(graph_.ops()[sharing.op].output(sharing.reuse.output));
      if (std::string fault = harness::compare(graph_.tensors()[output].name + " in place",
                                               shared.values[output], want[output], tolerance);
          !fault.empty())
        return fault;
      if (std::string fault = bits_fault(graph_, apart, shared, "in place"); !fault.empty()) return fault;
    }
    return "";
  }

  Device& device_;
  const CardFacts& card_;
  const OpCase& case_;
  DType dtype_;
  bool wrong_;
  Graph graph_;
  std::vector<Values> values_;
};

bool is_named(const OpCase& c, const OpChoice& choice) {
  const auto has = [&](const std::string& part) { return c.name.find(part) != std::string::npos; };
  return (choice.named.empty() || std::ranges::any_of(choice.named, has)) &&
         std::ranges::none_of(choice.without, has);
}

// False where the process has to end.
bool check_case(Device& device, const CardFacts& card, const OpCase& c, DType dtype, const OpChoice& choice,
                int at, const Tell& tell) {
  Outcome outcome{"op/" + c.name + "/" + std::string(to_string(dtype)), "", {{"at", at}}};
  bool goes_on = true;
  try {
    outcome.detail = CaseOnCard(device, card, c, dtype, choice.wrong_op == c.name).ask(outcome.figures);
  } catch (const UsageError& refusal) {
    // Before Ampere bf16 has no tensor cores, and is refused by name.
    constexpr int kFirstWithBf16 = 80;
    if (dtype == DType::bf16 && card.compute_capability < kFirstWithBf16)
      outcome.figures["refused"] = refusal.what();
    else
      outcome.detail = std::string("refused: ") + refusal.what();
  } catch (const std::exception& error) {
    outcome.detail = error.what();
    outcome.figures["fatal"] = true;
    goes_on = false;
  }
  tell(outcome);
  return goes_on;
}

}  // namespace

OpRun run_on(Device& device, const CardFacts& card, const Graph& graph, const std::vector<Values>& values,
             std::optional<Sharing> sharing) {
  return harness::run_ops(
      graph, values, described(device, card),
      [&](const Graph& planned, const Op& op, const AddressOf& address) {
        const std::span<std::byte> host = harness::whole_arena(planned, address);
        const auto memory = device.map(static_cast<int64_t>(host.size()));
        device.upload(memory->data(), host);
        const BoundCall call = device.bind_sent(
            planned, op, [&](TensorId id) { return memory->data() + (address(id) - host.data()); },
            Sent{address});
        call();
        device.finish();
        device.download(host, memory->data());
      },
      sharing);
}

double farthest(const Values& got, const Values& want, harness::Tolerance tolerance) {
  double squares = 0, most = 0;
  for (const double x : want) squares += x * x;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(want.size(), 1)));
  for (size_t k = 0; k < want.size(); ++k) {
    const double allowed = tolerance.relative * std::abs(want[k]) + tolerance.absolute * rms;
    const double off = std::abs(got[k] - want[k]);
    if (off > 0 && allowed > 0) most = std::max(most, off / allowed);
  }
  return most;
}

void require_names(const OpChoice& choice) {
  const std::vector<OpCase>& cases = harness::gpu_cases();
  for (const auto* parts : {&choice.named, &choice.without})
    for (const std::string& part : *parts)
      if (std::ranges::none_of(cases,
                               [&](const OpCase& c) { return c.name.find(part) != std::string::npos; }))
        throw UsageError(part + ": no op case has this in its name");
}

std::vector<std::string> names_of_cases(const OpChoice& choice) {
  std::vector<std::string> names;
  for (const OpCase& c : harness::gpu_cases())
    if (is_named(c, choice)) names.push_back(c.name);
  return names;
}

bool has_fixed_bits(const Op& op, DType dtype, bool by_library) {
  if (harness::has_products(op.kind)) return dtype == DType::f32 && !op.attrs.contains("tf32") && !by_library;
  switch (op.kind) {
    case OpKind::attention:
    case OpKind::attention_grad:
    case OpKind::gla:
    case OpKind::gla_grad:
      return dtype == DType::f32;
    // CUDA's exp and log of doubles are not the host's in the last bit.
    case OpKind::preference_loss:
    case OpKind::preference_loss_grad:
      return false;
    default:
      return true;
  }
}

bool check_ops(Device& device, const CardFacts& card, const OpChoice& choice, const Tell& tell) {
  int at = 0;
  for (const OpCase& c : harness::gpu_cases()) {
    if (!is_named(c, choice)) continue;
    for (const DType dtype : harness::gpu_dtypes(c)) {
      if (at++ < choice.from) continue;
      if (!check_case(device, card, c, dtype, choice, at - 1, tell)) return false;
    }
  }
  return true;
}

}  // namespace plimsoll::gpu_check
