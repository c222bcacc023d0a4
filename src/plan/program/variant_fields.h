// A variant's fields by their names, for code that writes, reads or compares all of them.
#pragma once

#include <concepts>
#include <type_traits>

#include "plan/program/experiment.h"

namespace plimsoll {

template <typename Json>
void to_json(Json& json, const PartTarget& target) {
  json = Json{{"disk", target.on_disk}, {"host", target.on_host}};
}
template <typename Json>
void from_json(const Json& json, PartTarget& target) {
  json.at("disk").get_to(target.on_disk);
  json.at("host").get_to(target.on_host);
}

// Calls visit(name, value) for each field. A field that is added to a variant or to its parts does not
// compile before it has a name here.
template <typename V, typename Visit>
requires std::same_as<std::remove_const_t<V>, Variant>
void for_each_field(V& variant, Visit&& visit) {
  auto& [micro_batch, micro_tokens, accumulation, eval_micro_batch, eval_micro_tokens, loss_chunk, recompute,
         offload, keep_frozen, update_in_backward] = variant;
  auto& [layers, segment] = recompute;
  auto& [states, gradients, weights, activations, prefetch, slice_elements, smallest_bytes] = offload;
  visit("micro_batch", micro_batch);
  visit("micro_tokens", micro_tokens);
  visit("accumulation", accumulation);
  visit("eval_micro_batch", eval_micro_batch);
  visit("eval_micro_tokens", eval_micro_tokens);
  visit("loss_chunk", loss_chunk);
  visit("recompute.layers", layers);
  visit("recompute.segment", segment);
  visit("offload.states", states);
  visit("offload.gradients", gradients);
  visit("offload.weights", weights);
  visit("offload.activations", activations);
  visit("offload.prefetch", prefetch);
  visit("offload.slice_elements", slice_elements);
  visit("offload.smallest_bytes", smallest_bytes);
  visit("keep_frozen", keep_frozen);
  visit("update_in_backward", update_in_backward);
}

}  // namespace plimsoll
